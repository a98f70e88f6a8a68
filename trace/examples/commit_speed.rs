//! Measures nanoseconds per committed record: `cargo run --release -p trapline-trace --example commit_speed`.

use std::hint::black_box;
use std::time::Instant;

use trapline_trace::{ChannelConfig, Channels, Header, RecordView};

fn main() {
    let mut channels = Channels::new(1, ChannelConfig::default());
    for data in [0usize, 8, 64, 256] {
        let data = vec![0x5au8; data];
        let rounds = 2_000_000u32;
        let mut best = f64::INFINITY;
        for _ in 0..5 {
            let start = Instant::now();
            for n in 0..rounds {
                let header = Header { icount: n.into(), width: 32, ..Header::default() };
                channels.commit(black_box(&RecordView { header, name: b"appln", watch: None, data: &data }));
            }
            best = best.min(start.elapsed().as_nanos() as f64 / f64::from(rounds));
        }
        println!("{:4} bytes of data  {best:6.1} ns a commit", data.len());
    }
    println!("{:?}", channels.counts());
}
