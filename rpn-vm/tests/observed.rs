//! A run that is observed does as one that is not.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may fail as the test does")]

use crate::compare::{budget, ended, of_the_interpreter, shape, variables};
use crate::generate::{Choices, generate, mix};
use crate::hostile::Hostile;
use crate::naive::Ended;
use trapline_rpn::{Change, Observer, OpState, Termination, Unhandled, Vars, Verified, Vm, Width, verify};

/// Programs at each width.
const PROGRAMS: u64 = 20_000;

/// What was told.
#[derive(Default)]
struct Told {
    operations: u32,
    thrown: Option<Unhandled>,
    indices: Vec<u32>,
    /// The last state.
    log: Vec<u8>,
    lv: Vec<u64>,
}

impl Observer for Told {
    fn before(&mut self, state: &OpState<'_>) {
        self.operations += 1;
        self.indices.push(state.at);
        self.log = state.log.to_vec();
        self.lv = state.lv.to_vec();
    }

    fn threw(&mut self, exception: Unhandled) {
        self.thrown = Some(exception);
    }

    fn changed(&mut self, change: Change) {
        if let Change::Memory { old, new, .. } = change {
            assert_eq!(old.len(), new.len());
        }
    }
}

fn observed(vm: &mut Vm, program: &Verified, seed: u64) -> ((Ended, Hostile), Told) {
    let mut host = Hostile::new(seed, program.limits().width);
    let (mut lv, mut gv) = variables(program, seed);
    let mut told = Told::default();
    vm.set_max_steps(budget(seed));
    let vars = Vars { lv: &mut lv, gv: &mut gv };
    let out = vm.run_observed(program, &mut host, &mut told, vars);
    let ended = ended(vm, &out, lv, gv);
    ((ended, host), told)
}

#[test]
fn an_observed_run_does_as_one_that_is_not_and_each_step_is_told() {
    let (mut vm, mut thrown) = (Vm::new(), 0);
    for seed in 0..PROGRAMS {
        for width in [Width::W32, Width::W64] {
            let generated = generate(&mut Choices::Seed(mix(seed ^ 0x0b5e)), shape(width));
            let program = verify(generated.unverified()).unwrap();
            let plain = of_the_interpreter(&mut vm, &program, seed);
            let (with, told) = observed(&mut vm, &program, seed);
            // A host that is asked for the old bytes may know of the questions.
            assert_eq!(with.0, plain.0, "seed {seed}\n{}", generated.source());
            assert_eq!(with.1, plain.1, "seed {seed}\n{}", generated.source());
            assert_eq!(told.operations, plain.0.steps, "seed {seed}\n{}", generated.source());
            assert!(told.indices.iter().all(|&at| (at as usize) < program.instructions()));
            if plain.0.termination == Termination::Exception {
                let end = told.thrown.unwrap();
                assert_eq!(Some((end.code, end.parm1, end.parm2, end.at)), plain.0.exception);
                thrown += 1;
            }
        }
    }
    assert!(thrown > PROGRAMS / 50, "{thrown}");
}

#[test]
fn a_handler_that_only_ends_is_told_too() {
    let linked =
        trapline_rpn::parse("one", "name = a\nmodtype = kernel\nmajor = 1\noffset = 0\nopcode = 0\nexit\n")
            .unwrap()
            .link(Width::W32, &trapline_rpn::NoSymbols)
            .unwrap();
    let mut vm = Vm::new();
    let ((ended, _), told) = observed(&mut vm, &linked.probes[0].handler, 1);
    assert_eq!((ended.steps, told.indices), (1, vec![0]));
}
