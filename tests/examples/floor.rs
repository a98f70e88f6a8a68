use trapline_emu::*;
struct Null;
impl TrapInterposer for Null {
    fn trap(&mut self, core: &mut Core, _t: &Trap) -> Verdict { let e = core.env(); e.set_eip(e.eip()+1); Verdict::Resumed }
    fn faulted(&mut self, _: &mut Core) {}
    fn settled(&mut self, _: &mut Core) {}
    fn page_rewritten(&mut self, _: &mut Core, _: u64) {}
    fn code_page(&mut self, _: &mut Core, _: u64) {}
    fn wants_code_pages(&self) -> bool { false }
}
fn cpu() -> f64 { std::time::Instant::now().elapsed().as_secs_f64() }
fn main() {
    let _ = cpu();
    let mut m = Machine::new(&MachineConfig { mem_size: 16 << 20, model: CpuModel::Ia32 }).unwrap();
    m.write_physical(0x10000, &[0x48, 0x90, 0x75, 0xfc]);
    m.boot(&BootState { mode: CpuMode::Flat32, ip: 0x10000, ax: 0xffff_ffff, bx: 7, sp: 0x8000 });
    m.core_mut().arm(0x10001, &[0xcc], 0).unwrap();
    let mut best = 1e9f64;
    let mut n = Null;
    for _ in 0..20 {
        let t = std::time::Instant::now();
        let limit = m.icount() + 3 * 400_000;
        m.run(Some(&mut n as &mut dyn TrapInterposer), limit);
        best = best.min(t.elapsed().as_secs_f64() / 400_000.0 * 1e9);
    }
    println!("floor {best:.1} ns");
}
