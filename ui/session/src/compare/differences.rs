//! The differences between two states, by name.

use serde_json::Value;
use trapline_emu::{Core, CpuState, PAGE, SegmentState};
use trapline_os::CodePointer;

use super::linear::linear;
use super::pair::Pair;
use super::{Both, Bytes, Field, Register, Spot};
use crate::session::Session;

/// Most runs of bytes, and most fields of devices, that are shown.
const MOST: usize = 64;
/// Most bytes of one run.
const MOST_BYTES: usize = 64;
/// Most frames of a stack.
pub const FRAMES: usize = 16;

const GENERAL: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15",
];
const GENERAL32: [&str; 8] = ["eax", "ecx", "edx", "ebx", "esp", "ebp", "esi", "edi"];
const SEGMENTS: [&str; 6] = ["es", "cs", "ss", "ds", "fs", "gs"];
/// RF lasts for one instruction only.
const RF: u64 = 1 << 16;

/// The position of a run.
pub fn spot(session: &Session) -> Spot {
    let core = session.core();
    let ip = core.linear_ip();
    let (pid, task) = session.current_task().unzip();
    Spot { ip, symbol: session.symbol_here(), instruction: session.instruction_here(), pid, task }
}

/// The registers that differ.
pub fn registers(sessions: &Both<&Session>) -> Vec<Register> {
    // A 64-bit machine has more registers, and other names for them, while it is not in long mode too.
    let wide = sessions.a.core().env().long_mode() || sessions.b.core().env().long_mode();
    let of = |session: &&Session| named(session.core(), wide);
    let both = sessions.each(of);
    let pairs = both.a.into_iter().zip(both.b);
    let differ = pairs.filter(|((_, a), (_, b))| a != b);
    differ.map(|((name, a), (_, b))| Register { name, values: Both { a, b } }).collect()
}

fn hex(value: u64) -> String {
    format!("{value:#x}")
}

/// All registers with their names, those of a 64-bit machine if `wide`, as text. The clock is one of them.
fn named(core: &Core, wide: bool) -> Vec<(String, String)> {
    let cpu = core.cpu_state();
    let short: &[&str] = if wide { &GENERAL } else { &GENERAL32 };
    let mut all: Vec<(String, String)> = Vec::new();
    let mut put = |name: &str, value: String| all.push((name.to_owned(), value));
    short.iter().zip(cpu.gpr).for_each(|(name, value)| put(name, hex(value)));
    put(if wide { "rip" } else { "eip" }, hex(cpu.ip));
    put(if wide { "rflags" } else { "eflags" }, hex(cpu.eflags & !RF));
    put("cpl", cpu.cpl.to_string());
    let tables = [("ldtr", cpu.ldt), ("tr", cpu.tr), ("gdtr", cpu.gdt), ("idtr", cpu.idt)];
    for (name, state) in SEGMENTS.into_iter().zip(cpu.segments).chain(tables) {
        put(name, segment(state));
    }
    ["cr0", "cr2", "cr3", "cr4"].iter().zip(cpu.control).for_each(|(name, value)| put(name, hex(value)));
    (0..).zip(cpu.debug).for_each(|(n, value)| put(&format!("dr{n}"), hex(value)));
    model_registers(&cpu).iter().for_each(|(name, value)| put(name, hex(*value)));
    floating(&cpu).into_iter().for_each(|(name, value)| put(&name, value));
    for (name, set) in [
        ("halted", cpu.halted),
        ("nmi_pending", cpu.nmi_pending),
        ("nmi_blocked", cpu.nmi_blocked),
        ("interrupt_shadow", cpu.interrupt_shadow),
    ] {
        put(name, set.to_string());
    }
    put("instructions", core.icount().to_string());
    put("virtual_ns", core.virtual_ns().to_string());
    all
}

fn segment(state: SegmentState) -> String {
    let SegmentState { selector, base, limit, attributes } = state;
    format!("{selector:#x} base {base:#x} limit {limit:#x} attributes {attributes:#x}")
}

fn model_registers(cpu: &CpuState) -> [(&'static str, u64); 12] {
    let msr = &cpu.msr;
    [
        ("efer", msr.efer),
        ("sysenter_cs", msr.sysenter_cs.into()),
        ("sysenter_esp", msr.sysenter_esp),
        ("sysenter_eip", msr.sysenter_eip),
        ("star", msr.star),
        ("lstar", msr.lstar),
        ("cstar", msr.cstar),
        ("fmask", msr.fmask),
        ("kernel_gs_base", msr.kernel_gs_base),
        ("tsc_aux", msr.tsc_aux),
        ("pat", msr.pat),
        ("tsc_offset", msr.tsc_offset),
    ]
}

/// The registers of x87 and SSE.
fn floating(cpu: &CpuState) -> Vec<(String, String)> {
    let x87 = &cpu.x87;
    let words = [
        ("fcw", hex(x87.control.into())),
        ("fsw", hex(x87.status.into())),
        ("ftop", x87.top.to_string()),
        ("ftags", bytes_of(&x87.tags)),
        ("fop", hex(x87.opcode.into())),
        ("fip", hex(x87.instruction.0)),
        ("fdp", hex(x87.operand.0)),
        ("mxcsr", hex(cpu.mxcsr.into())),
    ];
    let mut all: Vec<(String, String)> = words.map(|(name, value)| (name.to_owned(), value)).into();
    all.extend((0..).zip(&x87.registers).map(|(n, value)| (format!("fpr{n}"), bytes_of(value))));
    all.extend((0..).zip(cpu.xmm).map(|(n, value)| (format!("xmm{n}"), format!("{value:#x}"))));
    all
}

fn bytes_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

/// The number of bytes of memory that differ now but did not differ from the start, and the first of them.
pub fn memory(pair: &Pair) -> (u64, Vec<Bytes>) {
    let (mut count, mut runs) = (0, Vec::<(u64, Vec<u8>, Vec<u8>)>::new());
    for (page, bytes) in pair.new_bytes() {
        count += bytes.len() as u64;
        for (at, a, b) in bytes {
            let at = u64::from(page) * PAGE + at as u64;
            let follows = |run: &&mut (u64, Vec<u8>, Vec<u8>)| {
                run.0 + run.1.len() as u64 == at && run.1.len() < MOST_BYTES
            };
            if let Some((_, of_a, of_b)) = runs.last_mut().filter(follows) {
                of_a.push(a);
                of_b.push(b);
            } else if runs.len() < MOST {
                runs.push((at, vec![a], vec![b]));
            }
        }
    }
    let session = pair.a.session();
    let named = |(physical, a, b): (u64, Vec<u8>, Vec<u8>)| {
        let linear = linear(session, physical);
        let symbol = linear.and_then(|at| session.symbol_of(CodePointer::At(at)));
        Bytes { physical, linear, symbol, values: Both { a: bytes_of(&a), b: bytes_of(&b) } }
    };
    (count, runs.into_iter().map(named).collect())
}

/// The number of fields of devices that differ, and the first of them.
pub fn devices(sessions: &Both<&Session>) -> (u64, Vec<Field>) {
    // The keys of a device's state are texts and numbers only, so this cannot fail.
    let states = sessions.each(|session| serde_json::to_value(session.core().platform()).unwrap_or_default());
    let mut found = Vec::new();
    walk(String::new(), &states.a, &states.b, &mut found);
    let count = found.len() as u64;
    found.truncate(MOST);
    (count, found)
}

fn walk(name: String, a: &Value, b: &Value, found: &mut Vec<Field>) {
    let below = |part: &str| if name.is_empty() { part.to_owned() } else { format!("{name}.{part}") };
    match (a, b) {
        _ if a == b => {}
        (Value::Object(of_a), Value::Object(of_b)) => {
            for (key, value) in of_a {
                walk(below(key), value, of_b.get(key).unwrap_or(&Value::Null), found);
            }
            for (key, value) in of_b.iter().filter(|(key, _)| !of_a.contains_key(*key)) {
                walk(below(key), &Value::Null, value, found);
            }
        }
        (Value::Array(of_a), Value::Array(of_b)) if of_a.len() == of_b.len() && of_a.len() > 8 => {
            for (n, (a, b)) in of_a.iter().zip(of_b).enumerate() {
                walk(format!("{name}[{n}]"), a, b, found);
            }
        }
        _ => found.push(Field { name, values: Both { a: a.clone(), b: b.clone() } }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_are_named_by_the_way_that_leads_to_them() {
        let a = json!({"uart": {"lcr": 3, "fifo": [1, 2]}, "pit": [0, 0, 0, 0, 0, 0, 0, 0, 5]});
        let b = json!({"uart": {"lcr": 3, "fifo": [1]}, "pit": [0, 0, 0, 0, 0, 0, 0, 0, 6], "new": true});
        let mut found = Vec::new();
        walk(String::new(), &a, &b, &mut found);
        let lines: Vec<String> =
            found.iter().map(|f| format!("{} {} {}", f.name, f.values.a, f.values.b)).collect();
        assert_eq!(lines, ["uart.fifo [1,2] [1]", "pit[8] 5 6", "new null true"]);
    }
}
