//! The probes of the table in a kernel.

use std::sync::Arc;

use trapline_emu::symbols::Symbol;
use trapline_interposer::Condition;
use trapline_trace::ProbeName;

use super::Found;
use super::kernel::{Kernel, function, place};
use super::table::{At, ROWS, Row, Typed, Value, When};
use super::value::{Holds, Values};
use crate::fbt;
use crate::provider::{ArgumentType, Probe, Site};
use crate::target::Target;

/// The probes of a provider.
pub fn probes(target: &Target, kernel: &Arc<Kernel>, provider: &str) -> Found {
    let mut found = Found::default();
    for row in ROWS.iter().filter(|row| row.provider == provider) {
        match row_probes(target, kernel, row) {
            Ok(probes) => found.probes.extend(probes),
            Err(why) => found.missing.push((row.name.to_owned(), why)),
        }
    }
    found
}

/// The probes of a row, one for each function; or what the kernel lacks.
fn row_probes(target: &Target, kernel: &Arc<Kernel>, row: &Row) -> Result<Vec<Probe>, String> {
    needs(kernel, row)?;
    let mut probes = Vec::new();
    for at in row.at {
        let name = &at.function();
        if matches!(at, At::Else(_)) && !probes.is_empty() {
            continue;
        }
        let Some(function) = function(target, name) else { continue };
        takes(kernel, row, name)?;
        if function.name.as_ref() != *name && !may_be_copy(row) {
            return Err(format!(
                "the kernel has {name} only as {}, whose arguments are unknown",
                function.name
            ));
        }
        let sites = sites(target, kernel, row, *at, function)?;
        let name = ProbeName {
            provider: row.provider.into(),
            module: Arc::clone(&kernel.name),
            function: Arc::clone(&function.name),
            name: row.name.into(),
        };
        let types = row.arguments.iter().map(argument_type).collect();
        let logged = row.arguments.len() as u8;
        probes.push(Probe { id: 0, name: Arc::new(name), sites, logged, processes: None, types });
    }
    if probes.is_empty() {
        let names: Vec<&str> = row.at.iter().map(|at| at.function()).collect();
        return Err(format!("the kernel has no function {}", names.join(" or ")));
    }
    Ok(probes)
}

fn argument_type((_, native, to, name): &Typed) -> ArgumentType {
    ArgumentType { name: (*name).to_owned(), ..ArgumentType::translated(native, to) }
}

/// Whether the arguments of the functions do not matter.
fn may_be_copy(row: &Row) -> bool {
    row.arguments.is_empty() && matches!(row.when, When::Always)
}

/// Whether the kernel has what the values of a row are read from.
fn needs(kernel: &Kernel, row: &Row) -> Result<(), String> {
    let values = row.arguments.iter().map(|(value, ..)| *value);
    let tested = match row.when {
        When::FirstThread(value) => {
            kernel.ids().ok_or("the layout of the kernel's struct task_struct is unknown")?;
            Some(value)
        }
        When::Always | When::Zero(_) | When::NotZero(_) | When::Negative(_) => None,
    };
    let current = values.chain(tested).any(|value| matches!(value, Value::Current));
    match current && !kernel.has_current() {
        true => Err("the kernel has no symbol current_task".to_owned()),
        false => Ok(()),
    }
}

/// Whether a function takes what the row expects, as far as the kernel describes its functions: versions differ.
fn takes(kernel: &Kernel, row: &Row, function: &str) -> Result<(), String> {
    for (value, native, ..) in row.arguments {
        let (Value::Argument(n) | Value::ExitReason(n)) = value else { continue };
        let Some(own) = kernel.parameter(function, *n) else { return Ok(()) };
        // Numbers have types with several names.
        if own.is_empty() || native.starts_with("struct") && own != *native {
            return Err(format!(
                "the kernel's function {function} takes other parameters than those that are known"
            ));
        }
    }
    Ok(())
}

fn sites(
    target: &Target,
    kernel: &Arc<Kernel>,
    row: &Row,
    at: At,
    function: &Symbol,
) -> Result<Vec<Site>, String> {
    let list = row.arguments.iter().map(|(value, ..)| *value).collect();
    let arguments = Arc::new(Values { kernel: Arc::clone(kernel), list });
    let when = match row.when {
        When::Always => None,
        when => Some(Arc::new(Holds { kernel: Arc::clone(kernel), when }) as Arc<dyn Condition>),
    };
    let shown: Vec<String> = row.arguments.iter().map(|typed| argument_type(typed).to_string()).collect();
    let own = |place, opcode, rule| Site {
        when: when.clone(),
        arguments: arguments.clone(),
        shown: shown.clone(),
        rule,
        at_call: true,
        ..Site::new(place, opcode)
    };
    let outside = || format!("{} does not lie in the kernel's image", function.name);
    match at {
        At::Entry(_) | At::Else(_) => {
            let (place, opcode) = place(target, function.addr).ok_or_else(outside)?;
            Ok(vec![own(place, opcode, "entry of the function")])
        }
        At::Return(name) => {
            let returns = fbt::kernel_returns(target, kernel.abi(), function);
            if returns.is_empty() || returns.iter().any(|site| site.tail_call) {
                return Err(format!("{name} does not always return by itself in this kernel"));
            }
            let own = |site: Site| Site {
                offset: site.offset,
                ..own(site.place, site.opcode, "return of the function")
            };
            Ok(returns.into_iter().map(own).collect())
        }
    }
}
