//! What a system call leads to on another track: a thread that it wakes or makes, and its own thread when that has left the
//! CPU in the call and comes back. A flow begins at the hit that says so, within the call's slice, and ends where the thread goes on.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::hit::{Hit, number};

/// Most flows that wait for their threads: a thread may never go on.
const MOST_PENDING: usize = 1 << 16;

/// Flows that have begun and not ended.
#[derive(Debug, Default)]
pub(super) struct Flows {
    /// The number of the last flow.
    last: u64,
    /// For each thread that is to go on: the flows to it, and the instruction count of the last one.
    pending: BTreeMap<u32, (Vec<u64>, u64)>,
    /// The number of flows in `pending`.
    waiting: usize,
    /// Flows that would have been too many.
    pub left_out: u64,
}

impl Flows {
    /// The flows that end at this hit: those to its thread.
    pub fn arriving(&mut self, hit: &Hit) -> Vec<u64> {
        let flows = self.pending.remove(&hit.pid).map(|(flows, _)| flows).unwrap_or_default();
        self.waiting -= flows.len();
        flows
    }

    /// The flow that begins at this hit, in a system call, if one does.
    pub fn beginning(&mut self, hit: &Hit, members: &Map<String, Value>) -> Option<u64> {
        let thread = match (hit.part(|p| &p.provider), hit.part(|p| &p.name)) {
            ("sched", "wakeup") | ("proc", "create" | "lwp-create") => thread_of(members)?,
            ("sched", "off-cpu") => hit.pid,
            _ => return None,
        };
        if self.waiting >= MOST_PENDING {
            self.left_out += 1;
            return None;
        }
        let (flows, at) = self.pending.entry(thread).or_default();
        // Two probes may say the same of one instruction.
        if !flows.is_empty() && *at == hit.icount {
            return None;
        }
        (self.last, self.waiting) = (self.last + 1, self.waiting + 1);
        flows.push(self.last);
        *at = hit.icount;
        Some(self.last)
    }

    /// The threads that do not go on any more, with the flows to them.
    pub fn take_pending(&mut self) -> impl Iterator<Item = (u32, Vec<u64>)> + use<> {
        self.waiting = 0;
        std::mem::take(&mut self.pending).into_iter().map(|(thread, (flows, _))| (thread, flows))
    }
}

/// The thread that the arguments of a hit name.
fn thread_of(members: &Map<String, Value>) -> Option<u32> {
    let arguments = members.get("args")?.as_array()?;
    let field = |argument: &str, field: &str| {
        let named = arguments.iter().find(|one| one.get("name").and_then(Value::as_str) == Some(argument))?;
        number(named.get("value")?.get("fields")?.get(field)?)
    };
    let id = field("lwp", "pr_lwpid").or_else(|| field("process", "pr_pid"))?;
    u32::try_from(id).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use trapline_trace::ProbeName;

    fn hit(provider: &str, name: &str, pid: u32, icount: u64) -> Hit {
        let [provider, module, function, name] = [provider, "m", "f", name].map(Arc::from);
        let probe = Some(Arc::new(ProbeName { provider, module, function, name }));
        let task = String::new();
        Hit {
            icount,
            time: icount,
            cpu: 0,
            pid,
            has_task: true,
            process: 0,
            task,
            probe,
            id: 1,
            stack: (0, 0),
        }
    }

    fn members(text: &str) -> Map<String, Value> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_flow_leads_to_the_thread_that_the_arguments_name_and_ends_at_its_next_hit() {
        let of = members(
            r#"{"args": [{"name": "lwp", "value": {"fields": {"pr_lwpid": 8}}},
                         {"name": "process", "value": {"fields": {"pr_pid": 7}}}]}"#,
        );
        let mut flows = Flows::default();
        assert_eq!(flows.beginning(&hit("sched", "wakeup", 1, 5), &of), Some(1));
        assert!(flows.arriving(&hit("sched", "on-cpu", 7, 6)).is_empty());
        assert_eq!(flows.beginning(&hit("sched", "wakeup", 2, 6), &of), Some(2));
        assert_eq!(flows.arriving(&hit("sched", "on-cpu", 8, 7)), [1, 2]);
        assert!(flows.arriving(&hit("sched", "on-cpu", 8, 8)).is_empty());
    }

    #[test]
    fn a_new_thread_is_named_by_two_probes_and_has_one_flow() {
        let process = members(r#"{"args": [{"name": "process", "value": {"fields": {"pr_pid": 9}}}]}"#);
        let mut flows = Flows::default();
        assert_eq!(flows.beginning(&hit("proc", "create", 1, 5), &process), Some(1));
        assert_eq!(flows.beginning(&hit("proc", "lwp-create", 1, 5), &process), None);
        assert_eq!(flows.beginning(&hit("sched", "off-cpu", 1, 6), &Map::new()), Some(2));
        assert_eq!(flows.take_pending().collect::<Vec<_>>(), [(1, vec![2]), (9, vec![1])]);
    }

    #[test]
    fn threads_that_never_go_on_have_a_limited_number_of_flows() {
        let mut flows = Flows::default();
        let off = |pid| hit("sched", "off-cpu", pid, pid.into());
        assert!((0..MOST_PENDING as u32).all(|pid| flows.beginning(&off(pid), &Map::new()).is_some()));
        assert_eq!((flows.beginning(&off(u32::MAX), &Map::new()), flows.left_out), (None, 1));
        assert_eq!(flows.arriving(&off(7)).len(), 1);
        assert!(flows.beginning(&off(u32::MAX), &Map::new()).is_some());
    }

    #[test]
    fn hits_that_name_no_thread_begin_no_flow() {
        let mut flows = Flows::default();
        for text in ["{}", r#"{"args": []}"#, r#"{"args": [{"name": "lwp", "value": 7}]}"#, r#"{"args": 1}"#]
        {
            assert_eq!(flows.beginning(&hit("sched", "wakeup", 1, 5), &members(text)), None, "{text}");
        }
        let large = members(r#"{"args": [{"name": "lwp", "value": {"fields": {"pr_lwpid": 4294967296}}}]}"#);
        assert_eq!(flows.beginning(&hit("sched", "wakeup", 1, 5), &large), None);
        assert_eq!(flows.beginning(&hit("fbt", "entry", 1, 5), &Map::new()), None);
    }
}
