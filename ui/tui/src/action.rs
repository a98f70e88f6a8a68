//! The one table of actions: identifier, keys, context, one sentence. Help, key line, palette and docs are views of it.
//!
//! Not here: the effects of actions.

/// Where an action applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Context {
    /// Everywhere.
    Anywhere,
    /// In panes with a selection or scrolling: it acts on the focused pane.
    Focused,
    /// In the list of hits.
    Hits,
    /// In the code.
    Code,
    /// In the memory.
    Memory,
    /// In the probes.
    Probes,
    /// In the console.
    Console,
}

impl Context {
    /// Its word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Anywhere => "anywhere",
            Self::Focused => "focused pane",
            Self::Hits => "Hits",
            Self::Code => "Code",
            Self::Memory => "Memory",
            Self::Probes => "Probes",
            Self::Console => "Console",
        }
    }
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The action.
    pub action: Action,
    /// Its name in files of keys.
    pub id: &'static str,
    /// Its keys, unless a file says otherwise.
    pub keys: &'static [&'static str],
    /// Where it applies.
    pub context: Context,
    /// Its description.
    pub sentence: &'static str,
}

macro_rules! actions {
    ($($action:ident $id:literal [$($key:literal),*] $context:ident $sentence:literal)*) => {
        /// An action.
        #[allow(rustdoc::broken_intra_doc_links, reason = "the sentences are texts of the screen: their brackets are no links")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Action { $(#[doc = $sentence] $action),* }

        /// All actions, in the order of the help.
        pub const TABLE: &[Entry] = &[$(Entry {
            action: Action::$action, id: $id, keys: &[$($key),*], context: Context::$context, sentence: $sentence,
        }),*];
    };
}

actions! {
    NextHit "next-hit" ["]"] Anywhere "go to the next hit"
    PreviousHit "previous-hit" ["["] Anywhere "go to the previous hit"
    NextOfProbe "next-of-probe" ["}"] Anywhere "go to the next hit of this hit's probe"
    PreviousOfProbe "previous-of-probe" ["{"] Anywhere "go to the previous hit of this hit's probe"
    Step "step" ["s"] Anywhere "go one instruction forward"
    Back "back" ["S"] Anywhere "go one instruction back"
    Over "over" ["n"] Anywhere "go one instruction forward, over calls"
    BackOver "back-over" ["N"] Anywhere "go one instruction back, over calls"
    Finish "finish" ["f"] Anywhere "go forward to where the function has returned"
    Caller "caller" ["F"] Anywhere "go back to the call of this function"
    Continue "continue" ["c"] Anywhere "go forward to a breakpoint or watchpoint"
    Reverse "reverse" ["C"] Anywhere "go back to a breakpoint or watchpoint"
    ContinueWhen "continue-when" ["u"] Anywhere "go forward to where a condition becomes true, such as eax == ebx && u8[esp] != al"
    ReverseWhen "reverse-when" ["U"] Anywhere "go back to where a condition became true"
    LastChange "last-change" ["O"] Anywhere "go back to right after the last change of a register"
    Goto "goto" ["g"] Anywhere "go to a position: 300M, hit:7, end, end-1000, +1000 or -1000 from here, a bookmark, or a hit by #7"
    First "first" ["<"] Anywhere "go to the beginning of the run"
    End "end" [">"] Anywhere "go to the end of the run"
    Play "play" ["p"] Anywhere "play hit after hit, or stop playing"
    Faster "faster" [")"] Anywhere "play faster"
    Slower "slower" ["("] Anywhere "play slower"
    IntoHit "into-hit" ["i"] Anywhere "go into the hit that is here: to the first operation of its handlers"
    StepOperation "step-op" ["."] Anywhere "go one operation of the handler forward"
    BackOperation "back-op" [","] Anywhere "go one operation of the handler back"
    Out "out" ["I"] Anywhere "leave the hit, for the instruction"
    Undo "undo" ["C-o"] Anywhere "go back to where the last move began"
    Redo "redo" ["C-y", "C-i"] Anywhere "make an undone move again"
    Cancel "cancel" ["Esc"] Anywhere "cancel what is under way; else clear the filter"
    Breakpoint "breakpoint" ["b"] Anywhere "set or delete a breakpoint: an address or a symbol; in Code, the selected instruction"
    Watchpoint "watchpoint" ["W"] Anywhere "set or delete a watchpoint on writes: ADDRESS[:LENGTH]; in Memory, what is selected"
    Memory "memory" ["x"] Anywhere "show what an expression names: an address, a symbol or a register; with types, curthread->mm, (struct file *)rdi"
    Find "find" ["X"] Anywhere "look for a field by its name; or in memory, from the selected byte on, for \"text\", bytes (de ad) or a number (0x1234:4)"
    Bookmark "bookmark" ["m"] Anywhere "name this position"
    Filter "filter" ["/"] Anywhere "show only hits that match: words of probe, process or record, pid=N, probe=TEXT, text=TEXT"
    FocusNext "focus-next" ["Tab"] Anywhere "focus the next pane"
    FocusPrevious "focus-previous" ["S-Tab"] Anywhere "focus the previous pane"
    ShowHits "hits" ["1"] Anywhere "show Hits"
    ShowCode "code" ["2"] Anywhere "show Code"
    ShowRegisters "registers" ["3"] Anywhere "show Registers"
    ShowMemory "show-memory" ["4"] Anywhere "show Memory"
    ShowStack "stack" ["5"] Anywhere "show Stack"
    ShowHandler "handler" ["6"] Anywhere "show Handler"
    ShowConsole "console" ["7"] Anywhere "show Console"
    ShowProbes "probes" ["8"] Anywhere "show Probes"
    ShowVariables "variables" ["9"] Anywhere "show Variables"
    ShowProcesses "processes" ["0"] Anywhere "show Processes"
    ShowTimeline "timeline" ["="] Anywhere "show Timeline"
    ShowChannels "channels" ["d"] Anywhere "show Channels"
    Zoom "zoom" ["z"] Anywhere "give all the room to the focused pane, or take it back"
    Layout "layout" ["L"] Anywhere "take the next layout: by size, small, medium, large"
    Taller "taller" ["S-Up"] Anywhere "give the focused pane more lines"
    Shorter "shorter" ["S-Down"] Anywhere "give the focused pane fewer lines"
    Wider "wider" ["S-Right"] Anywhere "give the focused pane more columns"
    Narrower "narrower" ["S-Left"] Anywhere "give the focused pane fewer columns"
    Hide "hide" ["h"] Anywhere "hide the focused pane; its number shows it again"
    TimeIn "time-in" ["+"] Anywhere "show a shorter part of the run in the timeline"
    TimeOut "time-out" ["-"] Anywhere "show a longer part of the run in the timeline"
    Up "up" ["Up", "k"] Focused "one line up"
    Down "down" ["Down", "j"] Focused "one line down"
    PageUp "page-up" ["PageUp"] Focused "one page up"
    PageDown "page-down" ["PageDown"] Focused "one page down"
    Top "top" ["Home"] Focused "to the first line"
    Bottom "bottom" ["End"] Focused "to the last line"
    Enter "enter" ["Enter"] Focused "Hits: go there. Code: follow the branch. Stack: show the frame's code. Memory: follow the pointer, open the struct. Probes: enable or disable. Console: type a line"
    Sort "sort" ["t"] Hits "sort the list by its next column: process, program, probe, address, record, or the order of the run"
    Turn "turn" ["v"] Hits "reverse the list: the last row comes first"
    Columns "columns" ["V"] Hits "choose the columns: hit position process program probe address record"
    RunToCursor "run-to" ["r"] Code "go forward to where the selected instruction is executed"
    ReverseToCursor "reverse-to" ["R"] Code "go back to where the selected instruction was executed"
    Left "left" ["Left"] Memory "select the byte before"
    Right "right" ["Right"] Memory "select the next byte"
    MemoryBack "memory-back" ["Backspace"] Memory "show the memory that was shown before"
    Unfold "unfold" ["Space"] Memory "show the fields of the selected struct, array or pointer below it, or hide them"
    Writer "writer" ["o"] Memory "go back to right after the instruction that wrote the selected byte or field; back shows it"
    AddProbe "add-probe" ["a"] Anywhere "probe the whole run, the past too: SPEC { HANDLER } or a program's file; Tab completes names"
    TypeLine "type" ["l"] Console "type a line at the guest's console, here: from here on, the run is another one"
    SwitchProbe "switch-probe" ["e"] Probes "enable or disable the selected probe point, in the whole run"
    Copy "copy" ["y"] Focused "copy the focused pane's text to the clipboard of the terminal"
    Export "export" ["w"] Focused "write the focused pane's text to a file"
    Mouse "mouse" ["M"] Anywhere "use the mouse, or leave it to the terminal"
    Theme "theme" ["T"] Anywhere "take the other colours: dark, light, none"
    Palette "palette" [":"] Anywhere "choose an action by its name"
    Help "help" ["?"] Anywhere "show all keys"
    Redraw "redraw" ["C-l"] Anywhere "draw the screen again"
    Suspend "suspend" ["C-z"] Anywhere "go to the shell; `fg` comes back"
    Quit "quit" ["q"] Anywhere "leave"
}

impl Action {
    /// Its row.
    #[must_use]
    pub fn entry(self) -> Option<&'static Entry> {
        TABLE.iter().find(|entry| entry.action == self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn identifiers_and_keys_are_unique() {
        let ids: BTreeSet<_> = TABLE.iter().map(|entry| entry.id).collect();
        assert_eq!(ids.len(), TABLE.len());
        let keys: Vec<_> = TABLE.iter().flat_map(|entry| entry.keys).collect();
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len());
    }
}
