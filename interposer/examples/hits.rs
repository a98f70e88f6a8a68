//! The paper's loop with a probe: nanoseconds per iteration, for work on the hot path.
use std::time::Instant;
use trapline_emu::{BootState, CpuMode, CpuModel, Machine, MachineConfig, TrapInterposer};
use trapline_interposer::{Interposer, InterposerConfig, Place};
use trapline_rpn::{NoSymbols, Width, parse};
use trapline_trace::{ChannelConfig, HeaderItems};

fn main() {
    let n: u32 = 3_000_000;
    // mov eax, n; loop: dec eax; nop; jnz loop; cli; hlt
    let mut code = vec![0xb8];
    code.extend(n.to_le_bytes());
    code.extend([0x48, 0x90, 0x75, 0xfc, 0xfa, 0xf4]);
    let cases: [(&str, Option<(u64, u8, &str)>); 6] = [
        ("unprobed", None),
        ("nop, abort", Some((6, 0x90, "abort"))),
        ("dec, abort", Some((5, 0x48, "abort"))),
        ("dec, push eax; abort", Some((5, 0x48, "push r, eax\nabort"))),
        ("dec, exit", Some((5, 0x48, "exit"))),
        ("nop, log two", Some((6, 0x90, "push r, eax\npush r, ebx\nlog 2\nexit"))),
    ];
    for (name, probe) in cases {
        let mut m =
            Machine::new(&MachineConfig { mem_size: 16 << 20, model: CpuModel::Ia32 }).expect("machine");
        m.write_physical(0x10000, &code);
        m.boot(&BootState { mode: CpuMode::Flat32, ip: 0x10000, ax: 0, bx: 7, sp: 0x8000 });
        let mut i = Interposer::new(InterposerConfig {
            header: HeaderItems::default(),
            channel: ChannelConfig::default(),
            profile: None,
            max_steps: None,
        });
        if let Some((at, opcode, handler)) = probe {
            let text =
                format!("name = x\nmodtype = kernel\naddress = 0x10000\nopcode = {opcode:#x}\n{handler}\n");
            let program = parse("t.rpn", &text).expect("parses").link(Width::W32, &NoSymbols).expect("links");
            let place = Place::Kernel { linear: 0x10000 + at, paddr: 0x10000 + at };
            i.insert(m.core_mut(), "t", program, vec![place]).expect("inserts");
        }
        let t = Instant::now();
        let stop = m.run(Some(&mut i as &mut dyn TrapInterposer), u64::MAX);
        let ns = t.elapsed().as_nanos() as f64 / f64::from(n);
        println!("{name:24} {ns:8.1} ns/iteration  {stop:?} insns {} {:?}", m.icount(), i.stats());
    }
}
