//! Runs a D program in an embedded guest, and takes what it prints and counts as values.

use trapline_session::{AggregatedValue, Command, Condition, DSource, Datum, Error, GuestBuilder, Limits};

const PROGRAM: &str = "fbt::do_fork:entry { printf(\"fork by %s\", execname); @forks[execname] = count(); }
                       fbt::kmalloc:entry { @sizes = quantize(arg0); }";

fn main() -> Result<(), Error> {
    let mut session = GuestBuilder::embedded("ia32").memory(32 << 20).start()?;
    session.apply(Command::D(DSource::clauses(PROGRAM)))?;
    session.run_until(&Condition::end(), &Limits::insns(2_000_000_000));
    let records: Vec<_> = session.records().collect();
    let printed: Vec<_> = records.iter().filter_map(|record| session.printed(record)).collect();
    for hit in printed.iter().filter(|hit| !hit.text.is_empty()).take(2) {
        let Some(Datum::Text(name)) = hit.values.first() else { continue };
        println!("{:?} has the value {name:?}", hit.text);
    }
    for program in session.d_states(usize::MAX) {
        for aggregation in program.aggregations {
            for entry in aggregation.entries {
                match entry.value {
                    AggregatedValue::Number(count) => println!("@{} {:?} = {count}", aggregation.name, entry.keys),
                    AggregatedValue::Buckets(buckets) => {
                        let all: i64 = buckets.iter().map(|bucket| bucket.count).sum();
                        let most = buckets.iter().filter(|bucket| bucket.count > 0).filter_map(|bucket| bucket.max).max();
                        println!("@{}: {all} values, all at most {most:?}", aggregation.name);
                    }
                }
            }
        }
    }
    Ok(())
}
