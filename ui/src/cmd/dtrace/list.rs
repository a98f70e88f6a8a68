//! `-l`: the probes that the program's descriptions name; with `-v` the types of their arguments.

use std::io::Write;
use std::sync::Arc;

use trapline_d::Compiled;
use trapline_providers::Target;
use trapline_session::{DError, DSource, GuestTypes};

use crate::failure::Failure;

/// Lists the probes, each once, by identifier.
pub fn list(
    target: &Arc<Target>,
    (program, compiled): (&DSource, &Compiled),
    verbose: bool,
    out: &mut dyn Write,
) -> Result<Result<(), DError>, Failure> {
    let probes = match program.probes(target, compiled) {
        Ok(probes) => probes,
        Err(error) => return Ok(Err(error)),
    };
    let types = verbose.then(|| Arc::new(GuestTypes::new(Arc::clone(target))));
    let mut text = format!("{:>5} {:>10} {:>17} {:>33} NAME\n", "ID", "PROVIDER", "MODULE", "FUNCTION");
    for (id, name) in probes {
        text.push_str(&format!(
            "{id:>5} {:>10} {:>17} {:>33} {}\n",
            name.provider, name.module, name.function, name.name
        ));
        let Some(types) = &types else { continue };
        text.push_str("\n\tArgument Types\n");
        let shown = types.argument_names(&name.to_string());
        if shown.is_empty() {
            text.push_str("\t\tNone\n");
        }
        for (number, ty) in shown.iter().enumerate() {
            text.push_str(&format!("\t\targs[{number}]: {ty}\n"));
        }
        text.push('\n');
    }
    out.write_all(text.as_bytes()).map_err(Failure::Output)?;
    Ok(Ok(()))
}
