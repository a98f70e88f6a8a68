//! The man page's programs compile, diagnostics are as they should be, verified programs are harmless.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may fail as the test does")]

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::TestHost;
use proptest::prelude::*;
use trapline_rpn::{
    AnySymbol, FileLoader, Insn, Limits, Op, OperandKind, ParseOptions, Program, TABLE, Termination,
    Unhandled, Unverified, Vars, Vm, Width, parse, parse_with, verify,
};

fn example(name: &str) -> Program {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/man").join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    let name = path.display().to_string();
    parse_with(&name, &text, &ParseOptions::default(), &mut FileLoader::default())
        .unwrap_or_else(|d| panic!("{d}"))
}

const EXAMPLES: &[(&str, usize)] = &[
    ("1-appln.rpn", 1),
    ("2-do_fork.rpn", 1),
    ("2b-vortex.rpn", 3),
    ("3-count.rpn", 1),
    ("4-swap_out.rpn", 1),
    ("5-general_protection.rpn", 1),
    ("6-groups.rpn", 8),
    ("7a-nr_free_pages.rpn", 1),
    ("7b-user.rpn", 1),
];

#[test]
fn the_examples_of_the_man_page_compile_for_both_widths() {
    for (name, probes) in EXAMPLES {
        let program = example(name);
        assert!(program.warnings.list.is_empty(), "{name}\n{}", program.warnings);
        for width in [Width::W32, Width::W64] {
            let linked = program.link(width, &AnySymbol).unwrap_or_else(|d| panic!("{name}\n{d}"));
            assert_eq!(linked.probes.len(), *probes, "{name}");
            assert!(linked.probes.iter().all(|p| p.handler.observe_only()), "{name}");
        }
    }
}

#[test]
fn the_examples_print_and_parse_to_the_same_program() {
    for (name, _) in EXAMPLES {
        same_after_printing(&example(name));
    }
}

fn same_after_printing(program: &Program) {
    let text = program.to_source();
    let again = parse("printed", &text).unwrap_or_else(|d| panic!("{text}\n{d}"));
    assert_eq!(again.to_source(), text);
    assert_eq!(again.header, program.header);
    for width in [Width::W32, Width::W64] {
        match (program.link(width, &AnySymbol), again.link(width, &AnySymbol)) {
            (Ok(a), Ok(b)) => {
                for (a, b) in a.probes.iter().zip(&b.probes) {
                    assert_eq!(a.handler.code(), b.handler.code());
                    assert_eq!(a.handler.limits(), b.handler.limits());
                    assert_eq!(
                        (a.opcode, a.minor, a.ignore, a.maxhits),
                        (b.opcode, b.minor, b.ignore, b.maxhits)
                    );
                }
            }
            (a, b) => assert_eq!(a.is_ok(), b.is_ok()),
        }
    }
}

#[test]
fn locations_keep_symbol_and_addend() {
    let text = "name = vmlinux\nmodtype = kernel\noffset = do_fork + 0x10\nopcode = 0x55\nabort\n";
    let symbols = BTreeMap::from([("do_fork".to_owned(), 0xc010_0000u64)]);
    let linked = parse("t", text).unwrap().link(Width::W32, &symbols).unwrap();
    let location = &linked.probes[0].location;
    assert_eq!(location.symbol.as_deref(), Some("do_fork"));
    assert_eq!(
        (location.symbol_value, location.addend, location.value),
        (Some(0xc010_0000), 0x10, 0xc010_0010)
    );
}

#[test]
fn only_programs_that_cannot_change_the_guest_are_observe_only() {
    for (code, observe) in [
        ("push r, eax\nlog 1", true),
        ("pop r, eax", false),
        ("pop u, eax", false),
        ("pop mem, u8", false),
        ("push io, u8", false),
        ("pop io, u8", false),
        ("callk", false),
        ("push 1\ncallk", false),
        ("push 4\ncallk", true),
        ("push 4\nnop\ncallk", false),
        ("jmp on\npush 4\non: callk", false),
        ("push 99\ncallk", false),
        ("call p\nproc p\npop r, eax\nendproc", false),
        ("abort\nproc p\npop r, eax\nendproc", true),
    ] {
        let text = format!("name = t\noffset = 0\nopcode = 0x55\n{code}\n");
        let linked = parse("t", &text).unwrap().link(Width::W32, &AnySymbol).unwrap();
        assert_eq!(linked.probes[0].handler.observe_only(), observe, "{code}");
    }
}

#[test]
fn an_exception_names_its_source_line() {
    let text = "name = t\noffset = 0\nopcode = 0x55\npush 1\npush 0\ndiv\n";
    let linked = parse("t", text).unwrap().link(Width::W32, &AnySymbol).unwrap();
    let mut vm = Vm::new();
    let out = vm.run(&linked.probes[0].handler, &mut TestHost::default(), Vars::default());
    assert_eq!(out.termination, Termination::Exception);
    assert_eq!(vm.unhandled(), Unhandled { code: 0x20, at: 2, ..Unhandled::default() });
    assert_eq!(linked.probes[0].lines.line(2), 6);
    assert_eq!(vm.unhandled().x_field(), 0x20);
}

#[test]
fn handlers_share_the_procedures_that_they_call() {
    const HANDLERS: usize = 2_000;
    const LENGTH: usize = 50_000;
    let mut text = "name = t\nvars = 1\n".to_owned();
    for n in 0..HANDLERS {
        text.push_str(&format!("offset = {n}\nopcode = 0x55\npush {n}\ncall long\n"));
    }
    text.push_str("proc long\n");
    text.push_str(&"nop\n".repeat(LENGTH - 4));
    text.push_str("call short\npush 0\nlog 2\nendproc\nproc short\ninc lv, 0\nendproc\n");
    let linked = parse("t", &text).unwrap().link(Width::W32, &AnySymbol).unwrap();
    let first = &linked.probes[0].handler;
    assert_eq!(linked.probes.len(), HANDLERS);
    assert!(linked.probes.iter().all(|probe| probe.handler.shares_code(first)));
    assert_eq!(first.program_instructions(), HANDLERS * 3 + LENGTH + 2);
    // Each looks as if the procedures were its own.
    let alone = |n: usize| {
        let tail = &text[text.find("proc long").unwrap()..];
        let text = format!("name = t\nvars = 1\noffset = {n}\nopcode = 0x55\npush {n}\ncall long\n{tail}");
        parse("t", &text).unwrap().link(Width::W32, &AnySymbol).unwrap()
    };
    for n in [0, 1, 777, HANDLERS - 1] {
        let (alone, shared) = (&alone(n).probes[0], &linked.probes[n]);
        assert_eq!(shared.handler.code(), alone.handler.code());
        assert_eq!(shared.handler.routines(), alone.handler.routines());
        assert_eq!(shared.handler.instructions(), 3 + LENGTH + 2);
        let line = |at: usize| shared.lines.line(at as u32) as usize;
        assert_eq!(line(1), 2 + n * 4 + 4);
        let long = 2 + HANDLERS * 4 + 1;
        assert_eq!((line(3), line(3 + LENGTH)), (long + 1, long + LENGTH + 1 + 1));
        let mut log = Vec::new();
        for handler in [&alone.handler, &shared.handler] {
            let (mut vm, mut lv) = (Vm::new(), [0u64; 1]);
            let vars = Vars { lv: &mut lv, gv: &mut [] };
            let out = vm.run(handler, &mut TestHost::default(), vars);
            assert_eq!((out.termination, out.steps as usize, lv), (Termination::Exit, 3 + LENGTH + 2, [1]));
            log.push(vm.log().to_vec());
        }
        assert_eq!(log[0], log[1]);
        assert!(log[0].ends_with(&(n as u32).to_le_bytes()), "{:?}", log[0]);
    }
}

#[test]
fn exceptions_and_traces_of_a_shared_procedure_count_from_their_own_handler() {
    let procedures = "proc p\nsx caught\npush 1\npush 0\ncall q\ncaught: nop\nendproc\n\
                      proc q\nlog st\ndiv\nendproc\nproc r\ncall q\npush 1\npush 0\ndiv\nendproc\n";
    let header = "name = t\nexcpt_mask = 0xffff\nautostacktrace = yes\nexcpt_log = 4000\n";
    let handlers = ["call p\nexit", "push 7\nnop\ncall r", "push 1\ncall r\ncall p", "call q"];
    let point = |body: &str| format!("offset = 0\nopcode = 0x55\n{body}\n");
    let link = |bodies: &[&str]| {
        let points: String = bodies.iter().map(|body| point(body)).collect();
        parse("t", &format!("{header}{points}{procedures}")).unwrap().link(Width::W64, &AnySymbol).unwrap()
    };
    let together = link(&handlers);
    for (body, shared) in handlers.iter().zip(&together.probes) {
        let alone = link(&[body]);
        let run = |handler: &trapline_rpn::Verified| {
            let mut vm = Vm::new();
            let outcome = vm.run(handler, &mut TestHost::default(), Vars::default());
            let traced = vm.stack_trace().map(|t| (t.records.to_vec(), t.count, t.dropped));
            assert!(traced.is_some());
            (outcome, vm.unhandled(), traced)
        };
        let (wanted, found) = (run(&alone.probes[0].handler), run(&shared.handler));
        assert_eq!(found, wanted, "{body}");
        let at = wanted.1.at;
        let text = |probe: &trapline_rpn::LinkedProbe, program: &trapline_rpn::LinkedProgram| {
            let sources = &program.sources;
            sources.line(sources.main(), probe.lines.line(at)).to_owned()
        };
        assert_eq!(text(shared, &together), text(&alone.probes[0], &alone), "{body}");
    }
}

#[test]
fn a_run_sees_no_state_of_the_previous_run() {
    let link = |code: &str| {
        let text = format!("name = t\noffset = 0\nopcode = 0x55\n{code}\n");
        parse("t", &text).unwrap().link(Width::W64, &AnySymbol).unwrap().probes[0].handler.clone()
    };
    let (dirty, look) = (
        link("push -1\ndup 1023\npush 9\nrestore sbp\npush 1\nlog 1"),
        link("ros 1\nlog 1023\nsave sbp\nlog 1\npush x\nlog 3"),
    );
    let mut vm = Vm::new();
    let mut host = TestHost::default();
    vm.run(&dirty, &mut host, Vars::default());
    vm.run(&look, &mut host, Vars::default());
    assert!(vm.log().iter().all(|&b| b == 0));
}

#[test]
fn an_exception_without_variables_leaves_no_state_either() {
    let link = |code: &str| {
        let text = format!("name = t\nvars = 1\noffset = 0\nopcode = 0x55\n{code}\n");
        parse("t", &text).unwrap().link(Width::W64, &AnySymbol).unwrap().probes[0].handler.clone()
    };
    let mut vm = Vm::new();
    // The program has a variable, but the machine has none: only the fault touches the stack.
    let out = vm.run(&link("inc lv, 0"), &mut TestHost::default(), Vars::default());
    assert_eq!((out.termination, vm.stack()), (Termination::Exception, vec![0x40, 1, 0]));
    vm.run(&link("push tsp, 2\npush tsp, 2\nlog 2"), &mut TestHost::default(), Vars::default());
    assert!(vm.log().iter().all(|&b| b == 0), "{:?}", vm.log());
}

const BAD: &str = r#"name = /home/user/testapp
modtyp = kernel
vars = 3
ignore = 5
groupdef = process memory
push 1
offset = do_fork + 
opcode = 0x90af
group = proces
group = process
push r, eay
push u, cr0
pop r, eip
push r, xmm0
pop u, cr3
push r, cr1
push r, gpr3
psh 1
push lv, 3
push gv, 0
jmp nowhere
nowhre: nop
call prc
log mrs
push bis
log st
push mem, u9
push 0xfffffffffffffffff
push 12abc
rol 256
push "open
log str, 3
again: nop
again: nop
jmpmax = 3
offset = 3
/ comment
nop extra
watchpoint = w
offset = 4
watchpoint = w
#elif X
#includ "x"
#define
#include "missing.rpn"
end:
proc prc2
ret
"#;

#[test]
fn all_errors_of_a_file_come_at_once_with_their_place() {
    let errors = parse("bad.rpn", BAD).unwrap_err();
    insta::assert_snapshot!(errors.to_string());
}

#[test]
fn errors_of_linking_name_the_place_and_a_near_miss() {
    let text = "name = vmlinux\nmodtype = kernel\noffset = do_frk + 4\nopcode = 0x55\n\tpush r, r8\n\
                push 0x123456789\npush nr_free_page\n";
    let symbols = BTreeMap::from([("do_fork".to_owned(), 1u64), ("nr_free_pages".to_owned(), 2)]);
    let errors = parse("t.rpn", text).unwrap().link(Width::W32, &symbols).unwrap_err();
    insta::assert_snapshot!(errors.to_string());
}

#[test]
fn the_statements_of_stack_traces_are_checked_kept_and_printed() {
    let program =
        |lines: &str| parse("t", &format!("name = t\n{lines}\noffset = 0\nopcode = 0x55\nlog st\n"));
    let plain = program("").unwrap();
    assert_eq!((plain.header.excpt_log, plain.header.autostacktrace), (1024, false));
    let set = program("excpt_log = 0xffff\nAUTOSTACKTRACE = Yes").unwrap();
    assert_eq!((set.header.excpt_log, set.header.autostacktrace), (0xffff, true));
    same_after_printing(&set);
    let limits = *set.link(Width::W32, &AnySymbol).unwrap().probes[0].handler.limits();
    assert_eq!((limits.excpt_log, limits.autostacktrace), (0xffff, true));
    for (line, code) in [
        ("excpt_log = 65536", "out-of-range"),
        ("excpt_log = -1", "out-of-range"),
        ("autostacktrace = maybe", "bad-value"),
        ("autostacktrace = yes\nautostacktrace = no", "duplicate"),
    ] {
        let errors = program(line).unwrap_err();
        assert_eq!(errors.list.iter().map(|d| d.code).collect::<Vec<_>>(), [code], "{line}");
    }
    let misplaced = "name = t\noffset = 0\nopcode = 0x55\nautostacktrace = yes\nlog st\n";
    assert_eq!(parse("t", misplaced).unwrap_err().list[0].code, "misplaced");
}

#[test]
fn a_run_without_traces_has_none_of_the_previous_run() {
    let link = |code: &str| {
        let text = format!("name = t\noffset = 0\nopcode = 0x55\n{code}\n");
        parse("t", &text).unwrap().link(Width::W32, &AnySymbol).unwrap().probes[0].handler.clone()
    };
    let (traces, nothing, again) = (
        link("push 1\npush 9\ntrace pv\ncall p\nexit\nproc p\npush 1\npush 5\ntrace pv\nlog st\nendproc"),
        link("push 1"),
        link("call p\nexit\nproc p\nlog st\nendproc"),
    );
    let (mut vm, mut host) = (Vm::new(), TestHost::default());
    vm.run(&traces, &mut host, Vars::default());
    assert_eq!(vm.stack_trace().map(|t| t.count), Some(1));
    vm.run(&nothing, &mut host, Vars::default());
    assert_eq!(vm.stack_trace(), None);
    vm.run(&again, &mut host, Vars::default());
    // Two frames without entries.
    assert_eq!(vm.stack_trace().map(|t| (t.count, t.records.len())), Some((1, 4 * 4 + 3 + 2 * (2 * 4 + 9))));
}

#[test]
fn an_include_that_includes_itself_is_an_error() {
    struct Own;
    impl trapline_rpn::Loader for Own {
        fn load(&mut self, path: &str, _: &str) -> Result<(String, String), String> {
            Ok((path.to_owned(), "#include \"a.rpn\"\n".to_owned()))
        }
    }
    let errors = parse_with("a.rpn", "#include \"b.rpn\"\n", &ParseOptions::default(), &mut Own).unwrap_err();
    assert!(errors.list.iter().any(|d| d.code == "include-cycle"));
}

#[test]
fn includes_that_multiply_are_stopped() {
    struct Deeper;
    impl trapline_rpn::Loader for Deeper {
        fn load(&mut self, path: &str, from: &str) -> Result<(String, String), String> {
            Ok((format!("{from}/{path}"), "#include \"a\"\n#include \"b\"\n".to_owned()))
        }
    }
    let errors = parse_with("a", "#include \"a\"\n", &ParseOptions::default(), &mut Deeper).unwrap_err();
    assert!(errors.list.iter().any(|d| d.code == "include-depth"));
}

#[test]
fn macros_and_command_line_definitions_are_replaced() {
    let options = ParseOptions {
        defines: vec![("FUNC".into(), "do_fork".into()), ("N".into(), "2".into())],
        ..ParseOptions::default()
    };
    let text =
        "name = t\n#define WHERE FUNC + 0x10\n#define LOOP LOOP\noffset = WHERE\nopcode = 0x55\nlog N\n";
    let program = parse_with("t", text, &options, &mut trapline_rpn::NoFiles).unwrap();
    assert_eq!(program.probes[0].location.expr().to_source(), "do_fork + 0x10");
    assert_eq!(program.probes[0].handler.body[0].to_source(), "log 2");
}

/// A random instruction whose operand the verifier accepts.
fn insn(code_len: u64) -> impl Strategy<Value = Insn> {
    let ops: Vec<Op> = TABLE.iter().map(|r| r.op).collect();
    let small = prop_oneof![4 => 0u64..16, 1 => any::<u32>().prop_map(u64::from), 1 => Just(0x1000)];
    (proptest::sample::select(ops), small, any::<i32>()).prop_map(move |(op, n, disp)| {
        let arg = match op.row().operand {
            OperandKind::None => 0,
            OperandKind::Label => n % code_len,
            OperandKind::Proc => code_len + 1,
            OperandKind::Value | OperandKind::U32 => n,
            OperandKind::Count8 => n & 0xff,
            OperandKind::Count16 => n & 0xffff,
            OperandKind::Lv | OperandKind::Gv => n % 4,
            OperandKind::Disp => i64::from(disp) as u64,
            OperandKind::PushR => [6, 0x22, 0x24, 0x3c, 0x3d][n as usize % 5],
            OperandKind::PushU => [6, 0, 0x3e, 0x4d][n as usize % 4],
            OperandKind::PopR | OperandKind::PopU => 6 + n % 6,
        };
        Insn { op, arg }
    })
}

const LENGTH: usize = 30;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn verified_programs_never_panic_nor_exceed_their_budget(
        handler in proptest::collection::vec(insn(LENGTH as u64), LENGTH),
        procedure in proptest::collection::vec(insn(LENGTH as u64), LENGTH),
        mask in any::<u16>(), logmax in 0u32..200, wide: bool, excpt_log in 0u32..2000, autostacktrace: bool,
    ) {
        let mut code = handler;
        code.push(Insn { op: Op::Exit, arg: 0 });
        let start = code.len() as u64;
        code.extend(procedure.into_iter().map(|mut i| {
            if i.op.row().operand == OperandKind::Label { i.arg += start; }
            i
        }));
        code.push(Insn { op: Op::Ret, arg: 0 });
        prop_assert_eq!(decode_again(&code), code.clone());
        let width = if wide { Width::W64 } else { Width::W32 };
        let limits = Limits { width, logmax, jmpmax: 5000, vars: 4, gvars: 4, excpt_mask: mask.into(), kernel: true, excpt_log, autostacktrace };
        let program = verify(Unverified { code, routines: vec![0, start as u32], limits }).unwrap();
        let mut host = TestHost { mem: (0x1000..0x1040).map(|a| (a, a as u8)).collect(), ..TestHost::default() };
        let mut vm = Vm::new();
        let (mut lv, mut gv) = ([0u64; 4], [0u64; 4]);
        let first = vm.run(&program, &mut host.clone(), Vars { lv: &mut lv, gv: &mut gv });
        prop_assert!(first.steps <= 65_536);
        prop_assert!(vm.log().len() <= logmax as usize);
        let traced = vm.stack_trace().map(|t| (t.records.to_vec(), t.count, t.dropped));
        if let Some((records, count, _)) = &traced {
            prop_assert!(records.len() <= excpt_log as usize);
            let head = trapline_trace::TraceHead { module: b"t", offset: 0, id: 0, major: 0, minor: 0 };
            let mut data = Vec::new();
            head.encode(width.bits(), *count, &mut data);
            data.extend_from_slice(records);
            let decoded = trapline_trace::StackTrace::decode(&data, width.bits()).unwrap();
            prop_assert_eq!(decoded.records.len(), usize::from(*count));
        }
        if width == Width::W32 {
            prop_assert!(vm.stack().iter().chain(&lv).chain(&gv).all(|v| v >> 32 == 0));
        }
        // A second run from the same state gives the same: no state of the first is left.
        let log = vm.log().to_vec();
        let (mut lv, mut gv) = ([0u64; 4], [0u64; 4]);
        let second = vm.run(&program, &mut host, Vars { lv: &mut lv, gv: &mut gv });
        prop_assert_eq!((first, &log[..]), (second, vm.log()));
        prop_assert_eq!(traced, vm.stack_trace().map(|t| (t.records.to_vec(), t.count, t.dropped)));
    }

    #[test]
    fn the_verifier_refuses_or_accepts_anything_without_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..80), second in 0u32..40,
    ) {
        let Ok(mut code) = trapline_rpn::decode(&bytes) else { return Ok(()) };
        code.push(Insn { op: Op::Exit, arg: 0 });
        let limits = Limits { width: Width::W32, logmax: 64, jmpmax: 100, vars: 2, gvars: 2, excpt_mask: 0xffff, kernel: false, excpt_log: 200, autostacktrace: true };
        for routines in [vec![0], vec![0, second]] {
            let given = Unverified { code: code.clone(), routines, limits };
            if let Ok(program) = verify(given) {
                let (mut lv, mut gv) = ([0u64; 2], [0u64; 2]);
                Vm::new().run(&program, &mut TestHost::default(), Vars { lv: &mut lv, gv: &mut gv });
            }
        }
    }

    #[test]
    fn parse_print_parse_is_the_identity(
        lines in proptest::collection::vec(insn(8), 8..40), vars in 4u32..100, ignore: u32, mask: u16, yes: bool,
    ) {
        let mut text = format!(
            "name = \"a b\"\nmodtype = kernel\nvars = {vars}\ngvars = 4\nlogonfault = {}\noffset = sym - 0x10 + 4\n\
             opcode = 0xcc\nignore = {ignore}\nexcpt_mask = {mask}\n",
            if yes { "yes" } else { "no" },
        );
        for (n, insn) in lines.iter().enumerate() {
            let shown = insn.to_text().replace('@', "L");
            let shown = if insn.op == Op::Call { "call proc_a".to_owned() } else { shown };
            text.push_str(&format!("L{n}: {shown}\n"));
        }
        text.push_str("push \"pid\" + 3 - x.y\nproc proc_a\nret\nendproc\n");
        same_after_printing(&parse("generated", &text).unwrap_or_else(|d| panic!("{text}\n{d}")));
    }

    #[test]
    fn parsing_anything_never_panics(text in "[a-z0-9=:,+() \n#\"/.-]{0,200}") {
        let _ = parse("any", &text);
    }

    #[test]
    fn parsing_words_of_the_language_never_panics(
        words in proptest::collection::vec(proptest::sample::select(vec![
            "push", "pop", "log", "lv", "r", "u", "eax", "mem", "u8", ",", "=", ":", "\n", "\n", "offset", "name", "t",
            "opcode", "1", "0x", "-", "(", ")", "proc", "endproc", "sx", "#define", "#include", "\"", "jmp", "é", "vars",
        ]), 0..80),
    ) {
        let _ = parse("any", &words.join(" ")).map(|p| p.link(Width::W64, &AnySymbol).is_ok());
    }
}

fn decode_again(code: &[Insn]) -> Vec<Insn> {
    trapline_rpn::decode(&trapline_rpn::encode(code)).unwrap()
}
