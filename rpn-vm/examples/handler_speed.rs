//! Measures nanoseconds per run of a few handlers: `cargo run --release -p trapline-rpn --example handler_speed`.
//!
//! It measures the interpreter alone, against a host that answers from an array.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

use trapline_rpn::{AnySymbol, Context, Fault, Host, Reg, Vars, Vm, Width, parse};

struct Flat {
    regs: [u64; 128],
    mem: Vec<u8>,
}

impl Host for Flat {
    #[inline]
    fn read_reg(&mut self, _: Context, reg: Reg) -> u64 {
        self.regs[reg as usize & 127]
    }
    fn read_wide(&mut self, _: Context, _: Reg) -> u128 {
        0
    }
    fn write_reg(&mut self, _: Context, reg: Reg, value: u64) -> bool {
        self.regs[reg as usize & 127] = value;
        true
    }
    fn cpuid(&mut self, _: u32) -> [u32; 4] {
        [0; 4]
    }
    fn rdmsr(&mut self, _: u32) -> Option<u64> {
        None
    }
    fn read_mem(&mut self, addr: u64, buf: &mut [u8]) -> Result<(), Fault> {
        let start = usize::try_from(addr).map_err(|_| Fault(addr))?;
        let from = self.mem.get(start..start.saturating_add(buf.len())).ok_or(Fault(addr))?;
        buf.copy_from_slice(from);
        Ok(())
    }
    fn write_mem(&mut self, addr: u64, _: &[u8]) -> Result<(), Fault> {
        Err(Fault(addr))
    }
    fn can_write(&mut self, _: u64) -> bool {
        false
    }
    fn pid(&mut self) -> u64 {
        42
    }
    fn procid(&mut self) -> u64 {
        0
    }
    fn task(&mut self) -> u64 {
        0xc000_2000
    }
    fn io_read(&mut self, _: u16, _: u8) -> u32 {
        0
    }
    fn io_write(&mut self, _: u16, _: u8, _: u32) {}
    fn seg2lin(&mut self, _: u16, offset: u64) -> Option<u64> {
        Some(offset)
    }
}

const HANDLERS: &[(&str, &str)] = &[
    ("abort", "abort\n"),
    ("exit", "exit\n"),
    ("inc lv; abort", "inc lv, 1\nabort\n"),
    ("two registers", "push r, eax\npush r, ebx\nlog 2\nexit\n"),
    ("log mrf 16", "push 16\npush 0x100\nlog mrf\nexit\n"),
    (
        "sum loop 1000",
        "push 0\npush 1000\nagain: push tsp, 0\npop lv, 0\npush lv, 1\npush lv, 0\nadd\npop lv, 1\nloop again\nabort\n",
    ),
];

fn main() {
    compile();
    let mut vm = Vm::new();
    let mut host = Flat { regs: [7; 128], mem: vec![1; 4096] };
    let (mut lv, mut gv) = ([0u64; 4], [0u64; 1]);
    for width in [Width::W32, Width::W64] {
        for (name, code) in HANDLERS {
            let text = format!("name = t\nvars = 4\njmpmax = 100000\noffset = 0\nopcode = 0x55\n{code}");
            let linked = match parse("speed", &text).and_then(|p| p.link(width, &BTreeMap::new())) {
                Ok(linked) => linked,
                Err(errors) => return eprintln!("{errors}"),
            };
            let handler = &linked.probes[0].handler;
            let rounds = if name.contains("1000") { 3_000 } else { 5_000_000 };
            let mut best = f64::INFINITY;
            for _ in 0..5 {
                let start = Instant::now();
                for _ in 0..rounds {
                    black_box(&vm.run(black_box(handler), &mut host, Vars { lv: &mut lv, gv: &mut gv }));
                }
                best = best.min(start.elapsed().as_nanos() as f64 / f64::from(rounds));
            }
            println!("{width} bits  {name:<16} {best:9.1} ns");
        }
    }
}

/// Time to compile and link a program of 10,000 lines.
fn compile() {
    let mut text = String::from("name = t\nmodtype = kernel\nvars = 4\n");
    for n in 0..1000 {
        text.push_str(&format!("offset = f{n} + 0x10\nopcode = 0x55\nminor = {n}\n"));
        text.push_str("push r, eax\npush u, ebx\nadd\nhere: dec lv, 1\npush mem, u32\njnz here\nlog 2\n");
    }
    let start = Instant::now();
    let linked = parse("big", &text).and_then(|p| p.link(Width::W32, &AnySymbol)).map(|l| l.probes.len());
    println!(
        "compiling 10,000 lines: {:.1} ms, {:?} probes",
        start.elapsed().as_secs_f64() * 1e3,
        linked.ok()
    );
}
