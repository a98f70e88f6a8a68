//! Boots a Multiboot image and prints its console, for engine work.
use trapline_emu::{BootModule, CpuModel, Machine, MachineConfig, load::Image};
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let bytes = std::fs::read(&args[1]).expect("image");
    let image = Image::parse(&bytes, &args[1]).expect("image");
    let mut m = Machine::new(&MachineConfig { mem_size: 256 << 20, model: CpuModel::Ia32 }).expect("machine");
    let cmdline = std::env::var("CMDLINE").unwrap_or_default();
    let modules: Vec<BootModule> = args[2..]
        .iter()
        .map(|p| BootModule { string: p.clone(), bytes: std::fs::read(p).expect("module") })
        .collect();
    m.load(&image, &cmdline, &modules).expect("load");
    m.watch_console(vec![b"db>".to_vec()]);
    let limit = std::env::var("LIMIT").ok().and_then(|s| s.parse().ok()).unwrap_or(20_000_000_000);
    let t = std::time::Instant::now();
    let stop = m.run(None, limit);
    let dt = t.elapsed();
    print!("{}", String::from_utf8_lossy(m.console()));
    println!("\n--- {stop:?}\n{}", m.core().dump_registers());
    println!("icount {} digest {} {:?} {:?}", m.icount(), m.digest(), m.counters(), dt);
}
