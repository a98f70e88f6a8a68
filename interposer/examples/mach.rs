//! GNU Mach with a probe on every function that begins 55 89 e5.
use std::time::Instant;
use trapline_emu::{CpuModel, Machine, MachineConfig, TrapInterposer, load::Image, symbols::Symbols};
use trapline_interposer::{Interposer, InterposerConfig, Place};
use trapline_rpn::{NoSymbols, Width, parse};
use trapline_trace::{ChannelConfig, HeaderItems};

fn main() {
    let probed = std::env::args().nth(1).as_deref() == Some("probed");
    let bytes = std::fs::read(".guests/gnumach").expect("gnumach");
    let image = Image::parse(&bytes, "gnumach").expect("image");
    let symbols = Symbols::from_elf(&bytes, "gnumach").expect("symbols");
    let mut m = Machine::new(&MachineConfig { mem_size: 256 << 20, model: CpuModel::Ia32 }).expect("machine");
    m.load(&image, "console=com0", &[]).expect("load");
    m.watch_console(vec![b"db>".to_vec()]);
    let mut i = Interposer::new(InterposerConfig {
        header: HeaderItems::default(),
        channel: ChannelConfig::default(),
        profile: None,
        max_steps: None,
    });
    let mut text = String::from("name = gnumach\nmodtype = kernel\n");
    let mut places = Vec::new();
    let mut last = 0;
    let mut id = None;
    for s in symbols.functions() {
        if s.addr == last || image.plan().bytes_at(s.addr, 3).as_deref() != Some(&[0x55, 0x89, 0xe5]) {
            continue;
        }
        last = s.addr;
        text += &format!("address = {:#x}\nopcode = 0x55\npush r, eax\npush r, esp\nlog 2\nexit\n", s.addr);
        places.push(Place::Kernel {
            linear: s.addr,
            paddr: image.plan().vaddr_to_paddr(s.addr).expect("paddr"),
        });
    }
    println!("{} places", places.len());
    if probed {
        let program = parse("t.rpn", &text).expect("parses").link(Width::W32, &NoSymbols).expect("links");
        id = Some(i.insert(m.core_mut(), "t", program, places.clone()).expect("inserts"));
    }
    let t = Instant::now();
    let stop = m.run(Some(&mut i as &mut dyn TrapInterposer), 20_000_000_000);
    println!(
        "{stop:?} icount {} digest {} console {} in {:?}\n{:?} {:?}",
        m.icount(),
        m.digest(),
        m.console().len(),
        t.elapsed(),
        i.stats(),
        m.counters()
    );
    let oracle = std::fs::read_to_string("guest-images/oracle/gnumach.tsv").expect("oracle");
    let Some(id) = id else { return };
    let runs = i.runs(id);
    let (mut same, mut ran, mut shown) = (0, 0, 0);
    for line in oracle.lines().filter(|l| !l.starts_with('#')) {
        let f: Vec<&str> = line.split('\t').collect();
        let Ok(addr) = u64::from_str_radix(f[0].trim_start_matches("0x"), 16) else { continue };
        let want: u64 = f[2].parse().expect("count");
        let Some(n) =
            places.iter().position(|p| matches!(p, Place::Kernel { linear, .. } if *linear == addr))
        else {
            continue;
        };
        if runs[n] == want {
            same += 1;
            ran += u64::from(want > 0)
        } else if shown < 60 {
            shown += 1;
            println!("{} want {want} got {}", f[1], runs[n])
        }
    }
    println!("same {same}, of which ran {ran}");
}
