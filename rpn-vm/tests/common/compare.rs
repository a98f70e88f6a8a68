//! One program on both interpreters: the fast one and the naive one.

#![allow(dead_code, reason = "each user takes its part")]

use super::generate::{Generated, Shape, mix};
use super::hostile::Hostile;
use super::naive::{self, Ended};
use trapline_rpn::{Outcome, Termination, Vars, Verified, Vm, Width, verify};

pub fn shape(width: Width) -> Shape {
    Shape { width, tracing: true, items: 24 }
}

/// The step budget of a seed: mostly enough, sometimes just too small.
pub fn budget(seed: u64) -> u32 {
    if seed.is_multiple_of(8) { (mix(seed) % 60) as u32 } else { 3_000 }
}

/// The seed's variables, as many as the program has.
pub fn variables(program: &Verified, seed: u64) -> (Vec<u64>, Vec<u64>) {
    let limits = program.limits();
    let some = |count: u32, salt: u64| {
        (0..u64::from(count)).map(|n| mix(seed ^ salt ^ n) & limits.width.mask()).collect()
    };
    (some(limits.vars, 1), some(limits.gvars, 2))
}

/// The result of one interpreter: its end and its guest.
pub type Left = (Ended, Hostile);

pub fn of_the_interpreter(vm: &mut Vm, program: &Verified, seed: u64) -> Left {
    on_the_interpreter(vm, program, seed, Hostile::new(seed, program.limits().width))
}

pub fn of_the_oracle(program: &Verified, seed: u64) -> Left {
    on_the_oracle(program, seed, Hostile::new(seed, program.limits().width))
}

fn on_the_interpreter(vm: &mut Vm, program: &Verified, seed: u64, mut host: Hostile) -> Left {
    let (mut lv, mut gv) = variables(program, seed);
    vm.set_max_steps(budget(seed));
    let out = vm.run(program, &mut host, Vars { lv: &mut lv, gv: &mut gv });
    (ended(vm, &out, lv, gv), host)
}

/// How a run has ended that left these variables.
pub fn ended(vm: &Vm, out: &Outcome, lv: Vec<u64>, gv: Vec<u64>) -> Ended {
    let thrown = vm.unhandled();
    let exception = (thrown.code, thrown.parm1, thrown.parm2, thrown.at);
    let (major, minor) = vm.codes();
    Ended {
        termination: out.termination,
        exception: (out.termination == Termination::Exception).then_some(exception),
        log: vm.log().to_vec(),
        stack: vm.stack(),
        lv,
        gv,
        wraps: out.wraps,
        steps: out.steps,
        remove: out.remove,
        major,
        minor,
        trace: vm.stack_trace().map(|t| (t.records.to_vec(), t.count, t.dropped)),
    }
}

fn on_the_oracle(program: &Verified, seed: u64, mut host: Hostile) -> Left {
    let (lv, gv) = variables(program, seed);
    let ended = naive::run(&program.code(), *program.limits(), &mut host, (&lv, &gv), budget(seed));
    (ended, host)
}

pub fn differs(vm: &mut Vm, generated: &Generated, seed: u64) -> bool {
    let program = verify(generated.unverified()).unwrap();
    let host = Hostile::new(seed, program.limits().width);
    on_the_interpreter(vm, &program, seed, host.clone()) != on_the_oracle(&program, seed, host)
}
