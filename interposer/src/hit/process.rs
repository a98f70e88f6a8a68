//! Process filters of probe points.
//!
//! A page of a program or library is armed once, for all processes that map it. At a hit, before any handler runs, the
//! profile tells whether the current process passes the filter. The answer is valid until ring 3 is left: before that,
//! no task is switched, executes a program or changes its name. So in a loop a hit costs one comparison.

use crate::model::{Processes, Who};
use std::sync::Arc;
use trapline_emu::Core;
use trapline_os::OsProfile;

/// Longest name of a task (TASK_COMM_LEN without the NUL), in bytes: the guest cuts longer ones.
const LONGEST_NAME: usize = 15;

/// Whether the current process passes this filter. Without a profile only the filter for all processes passes.
fn holds(processes: &Processes, core: &Core, profile: Option<&dyn OsProfile>) -> bool {
    let Some(profile) = profile else { return processes.who == Who::Any };
    let executable = || profile.executable(core, profile.current_task(core));
    let named = match &processes.who {
        Who::Any => true,
        Who::Number(number) => profile.tgid(core) == *number,
        Who::Name(name) => {
            let mut comm = Vec::new();
            profile.name_into(core, &mut comm);
            let cut = name.as_bytes().get(..LONGEST_NAME).unwrap_or(name.as_bytes());
            comm == cut || executable().is_some_and(|path| path.rsplit('/').next() == Some(name))
        }
        Who::Path(path) => executable().as_ref() == Some(path),
    };
    let own = |path: &String| executable().is_none_or(|own| own == *path || !processes.known.contains(&own));
    let by_program = matches!(processes.who, Who::Name(_) | Who::Path(_));
    named
        && processes.program.as_ref().is_none_or(own)
        && has_mapped(processes, core, profile)
        && (processes.forked || !by_program || !profile.is_forked(core))
}

/// Whether the current process may have mapped the file that the probe is in.
fn has_mapped(processes: &Processes, core: &Core, profile: &dyn OsProfile) -> bool {
    let mappings = profile.mappings(core, profile.current_task(core));
    let mut files = mappings.iter().filter(|mapping| mapping.executable && !mapping.path.is_empty());
    let may_be_it = |path: &String| processes.copies.contains(path) || !processes.known.contains(path);
    // Where the system does not tell, the content of the page decides.
    files.clone().next().is_none() || files.any(|mapping| may_be_it(&mapping.path))
}

/// The filters of all probe points, and cached answers about the current process.
#[derive(Debug, Default)]
pub(crate) struct Filters {
    list: Vec<Filter>,
    /// Id of the current process, with the epoch of the answer.
    process: Option<(u64, u32)>,
}

#[derive(Debug)]
struct Filter {
    processes: Arc<Processes>,
    /// The epoch of the answer, and the answer.
    known: Option<(u64, bool)>,
}

impl Filters {
    /// The number of a filter; consecutive probe points with the same filter share it.
    pub fn add(&mut self, processes: &Arc<Processes>) -> u32 {
        let same = |filter: &Filter| Arc::ptr_eq(&filter.processes, processes);
        let at = self.list.iter().rposition(same).unwrap_or_else(|| {
            self.list.push(Filter { processes: Arc::clone(processes), known: None });
            self.list.len() - 1
        });
        at as u32
    }

    /// Whether the current process passes filter `number`. The kernel never does.
    #[inline]
    pub fn pass(&mut self, number: u32, core: &Core, profile: Option<&dyn OsProfile>) -> bool {
        let Some(filter) = self.list.get_mut(number as usize) else { return false };
        let now = core.user_exit_epoch();
        match filter.known {
            Some((then, answer)) if then == now => answer,
            _ if core.env().cpl() != 3 => false,
            _ => {
                let answer = holds(&filter.processes, core, profile);
                filter.known = Some((now, answer));
                answer
            }
        }
    }

    /// The id of the current process, in which a hit has just passed its filter; 0 if it is not known.
    pub fn process(&mut self, core: &Core, profile: Option<&dyn OsProfile>) -> u32 {
        let now = core.user_exit_epoch();
        match self.process {
            Some((then, number)) if then == now => number,
            _ => {
                let number = profile.map_or(0, |profile| profile.tgid(core));
                self.process = Some((now, number));
                number
            }
        }
    }
}
