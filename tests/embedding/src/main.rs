//! Boots the embedded guest of the architecture that is named, and prints each fork with its process.

use trapline_session::{Command, Condition, Error, GuestBuilder, Limits};

fn main() -> Result<(), Error> {
    let guest = std::env::args().nth(1).unwrap_or_else(|| "ia32".to_owned());
    let mut session = GuestBuilder::embedded(&guest).memory(32 << 20).start()?;
    session.apply(Command::clause("fbt::do_fork:entry { push pid; log 1 }"))?;
    let ending = session.run_until(&Condition::end(), &Limits::insns(2_000_000_000));
    let hits: Vec<_> = session.records().collect();
    for hit in &hits {
        let at = session.symbols().at(hit.header.ip).map(|at| at.to_string());
        println!("{:>9} {} pid {}", hit.header.icount, at.unwrap_or_default(), hit.data[0]);
    }
    println!("{ending} after {} instructions, {} forks", session.icount(), hits.len());
    println!("digest {}", session.digest());
    Ok(())
}
