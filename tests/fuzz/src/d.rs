//! The target of the D compiler.

use crate::generate::mix;
use crate::hostile::Hostile;
use crate::language::with_vm;
use crate::{Checks, Part};
use trapline_d::{Compiled, Compiler, Error, Model, Options};
use trapline_rpn::{Vars, Width};

/// Instructions that a clause may run here.
const STEPS: u32 = 20_000;

fn compiled(text: &[u8], model: Model) -> Result<Compiled, Error> {
    let mut compiler = Compiler::new(model, Options::default());
    compiler.add(text, &[b"d".to_vec()], &|_| None)?;
    compiler.finish()
}

pub fn d(bytes: &[u8], checks: Checks) {
    let models = [(Model::Lp64, true), (Model::Ilp32, checks.have(Part::OtherWidth))];
    for (model, _) in models.into_iter().filter(|(_, wanted)| *wanted) {
        match compiled(bytes, model) {
            Err(error) => {
                assert!(error.tag.starts_with("D_") && !error.message.is_empty(), "{error:?}");
            }
            Ok(program) if checks.have(Part::Run) => run(&program),
            Ok(_) => {}
        }
    }
}

/// Runs every clause on a guest without the services of D: each call of one throws.
fn run(program: &Compiled) {
    for (n, clause) in program.clauses.iter().enumerate() {
        assert_eq!(clause.lines.len(), clause.handler.code().len());
        let mut lv = vec![0; program.slots as usize];
        let mut guest = Hostile::new(mix(n as u64), Width::W64);
        let vars = Vars { lv: &mut lv, gv: &mut [] };
        with_vm(STEPS, |vm| assert!(vm.run(&clause.handler, &mut guest, vars).steps <= STEPS));
    }
}
