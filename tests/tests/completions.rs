//! `trapline completions bash` at the prompt of a real bash: keys are typed, and the line is read from the screen.

use crate::tmux::Tmux;

#[test]
fn tab_completes_an_image_and_its_probes_at_bashs_prompt() {
    let terminal = Tmux::new(130, 12);
    for line in ["bash --norc", "PS1='$ '; source <(trapline completions bash)", "clear"] {
        terminal.types(line);
        terminal.presses(&["Enter"]);
    }
    terminal.types("trapline run embedded:i");
    terminal.presses(&["Tab"]);
    terminal.shows("$ trapline run embedded:ia32");
    terminal.types("-n fbt::do_f");
    terminal.presses(&["Tab"]);
    terminal.shows("embedded:ia32 -n fbt::do_fork:");
    terminal.types("e");
    terminal.presses(&["Tab"]);
    terminal.types("-q -n 'fbt::do_ex");
    terminal.presses(&["Tab"]);
    terminal.shows("embedded:ia32 -n fbt::do_fork:entry -q -n 'fbt::do_exit:entry'");
}
