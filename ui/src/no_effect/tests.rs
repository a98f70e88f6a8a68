//! Every option of the command line is in one table: it always has an effect, or a command line shows that it is
//! refused otherwise.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails where its helpers do")]

use std::path::Path;

use clap::{CommandFactory, Parser};
use trapline_trace::HeaderItems;

use crate::cli::{CatArgs, Cli, Command, DtiCommand, TraceCommand};
use crate::output::Form;

/// Command, option, and a command line in which it has no effect; `-` for an option that always has one. `record` has
/// the options of `run`.
const TABLE: &str = "
- | --color | -
- | --progress | -
- | --quiet | -
- | --no-pager | -
run | --module | -
run | --initrd | -
run | --file | run embedded:ia32 --file /a=b
run | --sym | -
run | --fbt | run k --fbt strict
run | --abi | run k --abi cdecl
run | --target | run k --target 5
run | --follow-fork | run k -n x --follow-fork
run | --cmdline | -
run | --append | -
run | --mem | -
run | --cpu | -
run | --entry | -
run | --platform | -
run | --disk | -
run | --virtio-console | -
run | --virtio-rng | -
run | --virtio | run k --virtio pci
run | --fw-cfg | -
run | --probe | -
run | --name | -
run | --d-script | -
run | -x | run k -n x -x quiet
run | --destructive | run k -n x --destructive
run | --rpn | -
run | --stack | run k --stack
run | --ustack | run k --ustack
run | --group | run k --group a
run | --type | run k --type a
run | -D | run k -n x -D a
run | -I | run k -n x -I a
run | --require-signed | run k --require-signed a
run | --header | run k -n x -f dtrace --header pid
run | --channel | run k --channel 64K
run | --core-dir | run k --core-dir a
run | --max-cores | run k --max-cores 1
run | --max-steps | run k --max-steps 1
run | --watch-unlimited | run k --watch-unlimited
run | --stop-after | run k --stop-after 1
run | --interactive | run k -i --console none
run | --script | -
run | --restore | run k --restore s --record r
run | --save | -
run | --dump-on-crash | -
run | --dti-on-crash | -
run | --until | -
run | --crash-on | -
run | --limit-insns | -
run | --query | run k --query
run | --getvars | run k --getvars
run | --console | -
run | --format | -
run | --flow | run k --flow
run | --symbols | run k --symbols
run | --templates | run k --templates a
run | --output-file | -
run | --log-to | run k --log-to com1
run | --com2 | -
run | --digest | -
run | --stats | -
run | --fail-on-exception | run k --fail-on-exception
run | --fail-on-loss | run k --fail-on-loss
run | --record | -
run | --embed | run k --embed
run | --checkpoint-insns | run k --checkpoint-insns 5
run | --pages | run k --pages
replay | --verify | replay r -n x --branch a --verify
replay | --to | -
replay | --at | -
replay | --history-mem | replay r --history-mem 64M
replay | --who-wrote | replay a --who-wrote 5 --verify
replay | --calls | replay a --who-wrote 5 --calls c
replay | --before | replay a --before 5
replay | --when | replay a --when 5 --verify
replay | --first | replay a --first
replay | --last | replay a --last 5
replay | --from | replay r --from 5
replay | --branch | replay r --branch a
replay | --info | replay r --info --verify
replay | --speed-report | -
replay | --image-dir | -
replay | --probe | -
replay | --name | -
replay | --d-script | -
replay | -x | replay r -n x -x quiet
replay | --destructive | replay r -n x --destructive
replay | --rpn | -
replay | --stack | replay r --stack
replay | --ustack | replay r --ustack
replay | --group | replay r --group a
replay | --type | replay r --type a
replay | -D | replay r -n x -D a
replay | -I | replay r -n x -I a
replay | --require-signed | -
replay | --header | replay r --header pid
replay | --channel | replay r --channel 64K
replay | --core-dir | -
replay | --max-cores | replay r --max-cores 1
replay | --max-steps | replay r --max-steps 1
replay | --watch-unlimited | replay r --watch-unlimited
replay | --query | -
replay | --getvars | -
replay | --console | -
replay | --format | -
replay | --symbols | replay r -f json --symbols
replay | --templates | replay r -f raw --templates a
replay | --output-file | -
replay | --log-to | -
replay | --com2 | -
replay | --digest | -
replay | --stats | -
verify | --jobs | -
verify | --junit | -
verify | --update | -
verify | --image-dir | -
dump | --output-file | dump --info v -o a
dump | --compress | dump --info v --compress zlib
dump | --info | -
dump | --list | -
dump | --symbols | dump v -o a --symbols a
dump | --raw | dump v -o a --raw
dump | --cr3 | dump v -o a --raw --cr3 5
dump | --name | -
dump | --d-script | -
dump | -x | dump v -x quiet --rpn BEGIN
dump | --rpn | -
dump | --probe | -
dump | --at | dump --info v --at 5
dump | --until | dump a.tlr -o a --until a
dump | --limit-insns | dump a.tlr -o a --limit-insns 5
dump | --module | dump a.tlr -o a --module a
dump | --initrd | dump a.tlr -o a --initrd a
dump | --sym | dump a.tlr -o a --sym a
dump | --mem | dump a.tlr -o a --mem 64M
dump | --cmdline | dump a.tlr -o a --cmdline a
dump | --append | dump a.tlr -o a --append a
dump | --cpu | dump a.tlr -o a --cpu ia32
dump | --entry | dump a.tlr -o a --entry 32
dump | --platform | dump a.tlr -o a --platform pc
dump | --disk | dump a.tlr -o a --disk a
dump | --virtio-console | dump a.tlr -o a --virtio-console
dump | --virtio-rng | dump a.tlr -o a --virtio-rng
dump | --virtio | dump a.tlr -o a --virtio pci
dump | --fw-cfg | dump a.tlr -o a --fw-cfg a=b
dump | --image-dir | dump k -o a --image-dir a
dump | --format | dump k -o a -f json
list | --module | -
list | --initrd | -
list | --file | list embedded:ia32 --file /a=b
list | --sym | -
list | --fbt | list k --fbt strict
list | --abi | list k --abi cdecl
list | --target | list k --target 5
list | --follow-fork | list k --follow-fork
list | --at | -
list | --until | -
list | --limit-insns | list k --limit-insns 5
list | --cmdline | list k --cmdline a
list | --append | list k --append a
list | --mem | list k --mem 64M
list | --cpu | list k --cpu ia32
list | --entry | list k --entry 32
list | --platform | list k --platform pc
list | --disk | list k --disk a
list | --virtio-console | list k --virtio-console
list | --virtio-rng | list k --virtio-rng
list | --virtio | list k --virtio pci
list | --fw-cfg | list k --fw-cfg a=b
list | --modules | list k --modules
list | --processes | list k --processes
list | --verbose | list k -v
list | --opcode | list k --at insns=5 --modules --opcode
list | --bytes | list k a:b:c:d --bytes
list | --format | -
dis | --module | -
dis | --initrd | -
dis | --file | dis embedded:ia32 f --file /a=b
dis | --sym | -
dis | --fbt | dis k f --fbt strict
dis | --abi | dis k f --abi cdecl
dis | --target | dis k f --target 5
dis | --follow-fork | dis k f --follow-fork
dis | --armed | -
dis | --probe | -
dis | -D | dis k f -D a
dis | -I | dis k f -I a
dis | --require-signed | -
dis | --format | -
check | -D | check --explain a -D a
check | -I | check --explain a -I a
check | --require-signed | check --explain a --require-signed a
check | --width | check --explain a --width 32
check | --disassemble | check a -f json --disassemble
check | -E | check a -E -f json
gdb | --module | gdb a.tlr --module b
gdb | --initrd | gdb a.tlr --initrd b
gdb | --file | gdb a.tlr --file b
gdb | --sym | gdb a.tlr --sym b
gdb | --fbt | gdb a.tlr --fbt strict
gdb | --abi | gdb a.tlr --abi cdecl
gdb | --target | gdb a.tlr --target 5
gdb | --follow-fork | gdb k --follow-fork
gdb | --cmdline | gdb a.tlr --cmdline b
gdb | --append | gdb a.tlr --append b
gdb | --mem | gdb a.tlr --mem 32M
gdb | --cpu | gdb a.tlr --cpu ia32
gdb | --entry | gdb a.tlr --entry 32
gdb | --platform | gdb a.tlr --platform pc
gdb | --disk | gdb a.tlr --disk b
gdb | --virtio-console | gdb a.tlr --virtio-console
gdb | --virtio-rng | gdb a.tlr --virtio-rng
gdb | --virtio | gdb a.tlr --virtio pci
gdb | --fw-cfg | gdb a.tlr --fw-cfg a=b
gdb | --image-dir | gdb k --image-dir a
gdb | --probe | -
gdb | -D | gdb k -D a
gdb | -I | gdb k -I a
gdb | --require-signed | -
gdb | --listen | gdb k --stdio --listen 5
gdb | --stdio | -
gdb | --user | -
gdb | --history-mem | -
tui | --module | tui a.tlr --module b
tui | --initrd | tui a.tlr --initrd b
tui | --file | tui a.tlr --file b
tui | --sym | tui a.tlr --sym b
tui | --fbt | tui k --fbt strict
tui | --abi | tui k --abi cdecl
tui | --target | tui k --target 5
tui | --follow-fork | tui k -n x --follow-fork
tui | --cmdline | tui a.tlr --cmdline b
tui | --append | tui a.tlr --append b
tui | --mem | tui a.tlr --mem 32M
tui | --cpu | tui a.tlr --cpu ia32
tui | --entry | tui a.tlr --entry 32
tui | --platform | tui a.tlr --platform pc
tui | --disk | tui a.tlr --disk b
tui | --virtio-console | tui a.tlr --virtio-console
tui | --virtio-rng | tui a.tlr --virtio-rng
tui | --virtio | tui a.tlr --virtio pci
tui | --fw-cfg | tui a.tlr --fw-cfg a=b
tui | --image-dir | tui k --image-dir a
tui | --probe | -
tui | --name | -
tui | --d-script | -
tui | -x | tui k -n x -x quiet
tui | --destructive | tui k -n x --destructive
tui | --rpn | -
tui | --stack | tui k --stack
tui | --ustack | tui k --ustack
tui | --group | tui k --group a
tui | --type | tui k --type a
tui | --channel | tui k --channel 64K
tui | --core-dir | tui k -n x --core-dir a
tui | --max-cores | tui k -n x --max-cores 1
tui | --max-steps | tui k --max-steps 1
tui | --watch-unlimited | tui k --watch-unlimited
tui | -D | tui k -n x -D a
tui | -I | tui k -n x -I a
tui | --require-signed | -
tui | --header | tui k -n x --header pid
tui | --stop-after | tui k --stop-after 1
tui | --until | tui a.tlr --until b
tui | --crash-on | tui a.tlr --crash-on b
tui | --limit-insns | tui a.tlr --limit-insns 5
tui | --record | tui a.tlr --record b
tui | --embed | tui k --embed
tui | --checkpoint-insns | tui k --checkpoint-insns 5
tui | --pages | tui k --pages
tui | --history-mem | -
tui | --theme | -
tui | --keys | -
tui | --session | -
tui | --templates | -
tui | --substitute-path | -
tui | --frame-stats | -
diff | --image | diff a b --image c
diff | --mem | diff a b --mem 32M
diff | --cmdline | diff a b --cmdline c
diff | --append | diff a b --append c
diff | --image-dir | -
diff | --hits | -
diff | --format | -
check | --guest | check a --guest k
check | --initrd | check a.d --initrd b
check | --sym | check a.d --sym b
check | --explain | check a --explain b
check | --format | -
build | --output-file | -
build | --build-ppdf | -
build | -D | build --new-key a -D a
build | -I | build --new-key a -I a
build | --require-signed | build --new-key a --require-signed a
build | --width | build --new-key a --width 32
build | --sign | build --new-key a --sign a
build | --new-key | build a --new-key a
demo | --manual | -
demo | --limit-insns | demo --limit-insns 5
man | --all | man run --all a
trace cat | --format | -
trace cat | --symbols | trace cat a -f json --symbols
trace cat | --templates | trace cat a -f raw --templates a
trace cat | --stats | -
trace cat | --output-file | -
profile | --hz | profile k --hz 5 --exact f
profile | --insns | profile k --insns 5000 --hz 5
profile | --exact | -
profile | --by | profile k --by line -o f
profile | --output-file | -
profile | --format | profile k --format json
top | --hz | top k --hz 5 --insns 5000
top | --insns | top k --hz 5 --insns 5000
top | --every | top k --every 1ms --once
top | --once | top k --every 1ms --once
top | --rows | -
top | --format | -
trace convert | --to | -
trace convert | --output-file | -
trace convert | --weight | trace convert t --to csv --weight ns
trace convert | --diff | trace convert t --to json --diff o
fuzz | --module | fuzz a.tlr --module b
fuzz | --initrd | fuzz a.tlr --initrd b
fuzz | --file | fuzz embedded:ia32 --file /a=b
fuzz | --sym | fuzz a.tlr --sym b
fuzz | --fbt | fuzz a.tlr --fbt strict
fuzz | --abi | fuzz a.tlr --abi cdecl
fuzz | --target | fuzz a.tlr --target 5
fuzz | --follow-fork | fuzz k -n x --follow-fork
fuzz | --cmdline | fuzz a.tlr --cmdline b
fuzz | --append | fuzz a.tlr --append b
fuzz | --mem | fuzz a.tlr --mem 64M
fuzz | --cpu | fuzz a.tlr --cpu ia32
fuzz | --entry | fuzz a.tlr --entry 32
fuzz | --platform | fuzz a.tlr --platform pc
fuzz | --disk | fuzz a.tlr --disk b
fuzz | --virtio-console | fuzz a.tlr --virtio-console
fuzz | --virtio-rng | fuzz a.tlr --virtio-rng
fuzz | --virtio | fuzz a.tlr --virtio pci
fuzz | --fw-cfg | fuzz a.tlr --fw-cfg a=b
fuzz | --probe | fuzz a.tlr --probe b
fuzz | --name | fuzz a.tlr --name b
fuzz | --d-script | fuzz a.tlr -s b
fuzz | -x | fuzz a.tlr -x quiet
fuzz | --destructive | fuzz a.tlr --destructive
fuzz | --rpn | fuzz a.tlr --rpn b
fuzz | --stack | fuzz k -p a --stack
fuzz | --ustack | fuzz k -p a --ustack
fuzz | --group | fuzz a.tlr --group b
fuzz | --type | fuzz a.tlr --type b
fuzz | -D | fuzz a.tlr -D b
fuzz | -I | fuzz a.tlr -I b
fuzz | --require-signed | fuzz a.tlr --require-signed b
fuzz | --header | fuzz k -p a --header pid
fuzz | --channel | fuzz a.tlr --channel 64K
fuzz | --core-dir | fuzz k -p a --core-dir b
fuzz | --max-cores | fuzz k -p a --max-cores 1
fuzz | --max-steps | fuzz a.tlr --max-steps 1
fuzz | --watch-unlimited | fuzz a.tlr --watch-unlimited
fuzz | --explain | -
fuzz | --findings | -
fuzz | --corpus | -
fuzz | --at | -
fuzz | --hits | -
fuzz | --limit-insns | fuzz a.tlr --limit-insns 5
fuzz | --continue | -
fuzz | --function | -
fuzz | --input | -
fuzz | --until | fuzz k -p a --until return
fuzz | --broker | -
fuzz | --join | -
fuzz | --time | -
fuzz | --execs | -
fuzz | --seed | -
fuzz | --jobs | -
fuzz | --objective | -
fuzz | --no-objective | -
fuzz | --fix | fuzz k --function a --input ebx --fix hits
fuzz | --image-dir | fuzz k -p a --image-dir b
dti list | --restore | dti list a.tlr --restore b
dti list | --raw | -
dti list | --at | dti list v --at 5
dti list | --until | dti list a.tlr --until b
dti list | --limit-insns | dti list a.tlr --limit-insns 5
dti list | --module | dti list a.tlr --module b
dti list | --initrd | dti list a.tlr --initrd b
dti list | --sym | dti list a.tlr --sym b
dti list | --mem | dti list a.tlr --mem 64M
dti list | --cmdline | dti list a.tlr --cmdline b
dti list | --append | dti list a.tlr --append b
dti list | --cpu-model | dti list a.tlr --cpu-model ia32
dti list | --entry | dti list a.tlr --entry 32
dti list | --platform | dti list a.tlr --platform pc
dti list | --disk | dti list a.tlr --disk b
dti list | --virtio-console | dti list a.tlr --virtio-console
dti list | --virtio-rng | dti list a.tlr --virtio-rng
dti list | --virtio | dti list a.tlr --virtio pci
dti list | --fw-cfg | dti list a.tlr --fw-cfg a=b
dti list | --image-dir | dti list k --image-dir b
dti list | --format | -
dti show | --restore | dti show a.tlr --restore b
dti show | --raw | -
dti show | --at | dti show v --at 5
dti show | --until | dti show a.tlr --until b
dti show | --limit-insns | dti show a.tlr --limit-insns 5
dti show | --module | dti show a.tlr --module b
dti show | --initrd | dti show a.tlr --initrd b
dti show | --sym | dti show a.tlr --sym b
dti show | --mem | dti show a.tlr --mem 64M
dti show | --cmdline | dti show a.tlr --cmdline b
dti show | --append | dti show a.tlr --append b
dti show | --cpu-model | dti show a.tlr --cpu-model ia32
dti show | --entry | dti show a.tlr --entry 32
dti show | --platform | dti show a.tlr --platform pc
dti show | --disk | dti show a.tlr --disk b
dti show | --virtio-console | dti show a.tlr --virtio-console
dti show | --virtio-rng | dti show a.tlr --virtio-rng
dti show | --virtio | dti show a.tlr --virtio pci
dti show | --fw-cfg | dti show a.tlr --fw-cfg a=b
dti show | --image-dir | dti show k --image-dir b
dti show | --format | -
dti show | --view | dti show k -f json --view hex
dti show | --template | dti show k -f json --template a
dti show | --templates | dti show k -f json --templates a
dti show | --cpu | -
dti show | --unread | -
dti show | --cursor | -
dti show | --reset | -
dti follow | --restore | dti follow a.tlr --restore b
dti follow | --raw | -
dti follow | --at | dti follow v --at 5
dti follow | --until | dti follow a.tlr --until b
dti follow | --limit-insns | dti follow a.tlr --limit-insns 5
dti follow | --module | dti follow a.tlr --module b
dti follow | --initrd | dti follow a.tlr --initrd b
dti follow | --sym | dti follow a.tlr --sym b
dti follow | --mem | dti follow a.tlr --mem 64M
dti follow | --cmdline | dti follow a.tlr --cmdline b
dti follow | --append | dti follow a.tlr --append b
dti follow | --cpu-model | dti follow a.tlr --cpu-model ia32
dti follow | --entry | dti follow a.tlr --entry 32
dti follow | --platform | dti follow a.tlr --platform pc
dti follow | --disk | dti follow a.tlr --disk b
dti follow | --virtio-console | dti follow a.tlr --virtio-console
dti follow | --virtio-rng | dti follow a.tlr --virtio-rng
dti follow | --virtio | dti follow a.tlr --virtio pci
dti follow | --fw-cfg | dti follow a.tlr --fw-cfg a=b
dti follow | --image-dir | dti follow k --image-dir b
dti follow | --format | -
dti follow | --view | dti follow k -f json --view hex
dti follow | --template | dti follow k -f json --template a
dti follow | --templates | dti follow k -f json --templates a
dti follow | --cpu | -
dti follow | --unread | -
dti follow | --every | -
";

/// How an option is written.
fn name(arg: &clap::Arg) -> String {
    match (arg.get_long(), arg.get_short()) {
        (Some(long), _) => format!("--{long}"),
        (None, Some(short)) => format!("-{short}"),
        _ => panic!("{arg:?} is not an option"),
    }
}

/// The options of a command and of those below it.
fn options(command: &clap::Command, above: &str, found: &mut Vec<(String, String)>) {
    let of = if above.is_empty() { "-" } else { above };
    let listed = command.get_arguments().filter(|arg| !arg.is_positional());
    let own = listed.filter(|arg| !matches!(arg.get_id().as_str(), "help" | "version"));
    found.extend(own.map(|arg| (of.to_owned(), name(arg))));
    for below in command.get_subcommands() {
        options(below, format!("{above} {}", below.get_name()).trim_start(), found);
    }
}

/// Why a command line is refused before anything is read; `None` if it is not.
fn refusal(line: &str) -> Option<String> {
    let words = std::iter::once("trapline").chain(line.split(' '));
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) => return Some(error.to_string()),
    };
    let checked = match &cli.command {
        Command::Run(args) | Command::Record(args) => super::of_run(args),
        Command::Replay(args) => {
            let output = &args.output;
            let templates = output.templates.as_deref();
            let form = || Form::new(output.format, HeaderItems::empty(), output.symbols, templates);
            super::of_replay(args).and_then(|()| form().map(drop))
        }
        Command::Dump(args) => super::of_dump(args),
        Command::Fuzz(args) => super::of_fuzz(args),
        Command::Dti(args) => {
            let (source, records) = match &args.command {
                DtiCommand::List(args) => (&args.source, None),
                DtiCommand::Show(args) => (&args.source, Some(&args.records)),
                DtiCommand::Follow(args) => (&args.source, Some(&args.records)),
            };
            let records = records.map_or(Ok(()), |args| super::of_records(args, source.form.format));
            // The table calls a dump v.
            records.and_then(|()| super::of_dti(source, source.image == Path::new("v")))
        }
        Command::List(args) => super::of_list(args, false),
        Command::Tui(args) => super::of_tui(args),
        Command::Gdb(args) => super::of_gdb(args),
        Command::Dis(args) => super::of_dis(args),
        Command::Check(args) => super::of_check(args),
        Command::Trace(args) => {
            let form = |args: &CatArgs| {
                Form::new(args.format, HeaderItems::empty(), args.symbols, args.templates.as_deref())
            };
            match &args.command {
                TraceCommand::Cat(args) => form(args).map(drop),
                TraceCommand::Convert(args) => super::of_convert(args),
            }
        }
        Command::Verify(_)
        | Command::Man(_)
        | Command::Profile(_)
        | Command::Top(_)
        | Command::Diff(_)
        | Command::Build(_)
        | Command::Demo(_)
        | Command::Completions(_)
        | Command::Reference(_)
        | Command::Dtrace(_) => Ok(()),
    };
    checked.err().map(|failure| failure.to_string())
}

#[test]
fn every_option_always_has_an_effect_or_is_refused_where_it_has_none() {
    let rows: Vec<Vec<&str>> =
        TABLE.lines().filter(|line| !line.is_empty()).map(|line| line.split(" | ").collect()).collect();
    let mut found = Vec::new();
    options(&Cli::command(), "", &mut found);
    let is_row =
        |command: &str, option: &str| rows.iter().filter(|row| row[0] == command && row[1] == option).count();
    for (command, option) in &found {
        let command = if command == "record" { "run" } else { command };
        assert_eq!(is_row(command, option), 1, "{command} {option} must have one row in the table");
    }
    for row in &rows {
        let [command, option, line] = row.as_slice() else { panic!("{row:?}") };
        let exists = found.iter().any(|(of, name)| of == command && name == option);
        assert!(exists, "{command} has no option {option}");
        if *line != "-" {
            let said = refusal(line).unwrap_or_else(|| panic!("`{line}` is accepted"));
            let short = match *option {
                "--verbose" => "-v",
                "--destructive" => "-w",
                "--d-script" => "-s",
                other => other,
            };
            let names = said.contains(short) || said.contains("cannot be used with");
            assert!(names, "`{line}` is refused without naming {option}: {said}");
        }
    }
}
