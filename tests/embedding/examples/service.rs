//! Registers services that handlers call by name, and shows what handlers got from them.

use trapline_session::trapline_rpn::Reg;
use trapline_session::{
    Command, Condition, Error, GuestBuilder, Limits, Service, ServiceEffect, Thrown,
};

/// The sum of bytes in memory; pops their number, then their address.
fn sum() -> Service {
    Service::new("sum", (2, 1), ServiceEffect::Observes, |call| {
        let &[length, address] = call.arguments() else { return Err(Thrown::default()) };
        let mut bytes = vec![0; length.min(4096) as usize];
        let read = call.read(address, &mut bytes);
        read.map_err(|fault| Thrown { user: 1, parameters: [fault.0, 0] })?;
        call.results()[0] = bytes.iter().map(|byte| u64::from(*byte)).sum();
        Ok(())
    })
}

/// Sets a byte of memory; pops its value, then its address.
fn set(name: &str, effect: ServiceEffect) -> Service {
    Service::new(name, (2, 0), effect, |call| {
        let &[value, address] = call.arguments() else { return Err(Thrown::default()) };
        call.write(address, &[value as u8]).map_err(|fault| Thrown { user: 2, parameters: [fault.0, 0] })
    })
}

fn main() -> Result<(), Error> {
    let guest = GuestBuilder::embedded("ia32")
        .memory(32 << 20)
        .service(sum())
        .service(set("set", ServiceEffect::Changes))
        .service(set("cheat", ServiceEffect::Observes))
        .service(Service::new("stack_pointer", (0, 1), ServiceEffect::Observes, |call| {
            call.results()[0] = call.register(Reg::Sp);
            Ok(())
        }));
    let logged = |handler: &str| -> Result<(Vec<u32>, bool), Error> {
        let mut session = guest.start()?;
        session.apply(Command::clause(&format!("fbt::do_fork:entry {{ {handler} }}")))?;
        let observes = session.observe_only();
        session.run_until(&Condition::end().or_hits(1), &Limits::none());
        let record = session.records().next();
        let words = |data: Vec<u8>| data.chunks(4).map(|word| word.iter().rev().fold(0, |n, b| n << 8 | u32::from(*b))).collect();
        Ok((record.map(|record| words(record.data)).unwrap_or_default(), observes))
    };
    let (words, observes) = logged("push r, esp; push \"service:stack_pointer\"; callk; sub; log 1")?;
    println!("difference of stack pointers: {words:?}, observes only: {observes}");
    let bytes = "push r, esp; push mem, u32; log 1; push r, esp; push 4; push \"service:sum\"; callk; log 1";
    let (words, observes) = logged(bytes)?;
    let wanted = words[0].to_le_bytes().iter().map(|byte| u32::from(*byte)).sum::<u32>();
    println!("the sum of the bytes on top is right: {}, observes only: {observes}", words[1] == wanted);
    let write = |name: &str| format!("sx thrown; push r, esp; push 77; push \"service:{name}\"; callk; push r, esp; push mem, u8; log 1; exit; thrown: push x; log 1");
    for name in ["set", "cheat"] {
        let (words, observes) = logged(&write(name))?;
        println!("{name}: {words:x?}, observes only: {observes}");
    }
    let unknown = logged("push \"service:nothing\"; callk");
    println!("{}", unknown.err().map(|error| error.to_string()).unwrap_or_default().lines().next().unwrap_or_default());
    let twice = guest.clone().service(sum()).open().err();
    println!("{}", twice.map(|error| error.to_string()).unwrap_or_default());
    Ok(())
}
