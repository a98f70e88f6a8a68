//! The host services that a handler calls with `callk` (rpn.md 8), and what `exit 1`, `2` and `3` ask for.
//!
//! Services look at the guest without touching it; what they ask of the run (an end, a frozen channel) is kept in
//! [`Asked`] and seen to after the handler.

use crate::core_file::CoreFile;
use crate::host::Guest;
use trapline_emu::Core;
use trapline_rpn::{CallkError, CallkStack, services};

/// Return addresses that `kernel_stack` answers at most.
const MAX_FRAMES: u64 = 256;

/// Names an address for the service `symbol`: the symbol that holds it, and the offset in it.
pub type SymbolNames = Box<dyn Fn(u64) -> Option<(String, u64)>>;

/// What handlers have asked for, and what the services need.
#[derive(Default)]
pub(crate) struct Asked {
    /// The handler that is running asked for the end of the run.
    pub stop: bool,
    /// Hits after this one leave no record: the channel is frozen.
    pub frozen_after: Option<u64>,
    /// Core files that were not fetched yet.
    pub cores: Vec<CoreFile>,
    /// How many more may be taken.
    pub cores_left: u64,
    pub names: Option<SymbolNames>,
}

impl Guest<'_> {
    /// Calls a service.
    pub(crate) fn service(&mut self, number: u64, stack: &mut dyn CallkStack) -> Result<(), CallkError> {
        match number {
            services::STOP => self.asked.stop = true,
            services::FREEZE => self.asked.frozen_after = Some(self.stats.hits),
            services::RESUME => self.asked.frozen_after = None,
            services::KERNEL_STACK => {
                let most = stack.pop().min(MAX_FRAMES);
                let frames = kernel_stack(self.core, self.at_call, most as usize);
                frames.iter().rev().for_each(|&ip| stack.push(ip));
                stack.push(frames.len() as u64);
            }
            services::SYMBOL => {
                let address = stack.pop();
                let found = self.asked.names.as_ref().and_then(|name| name(address));
                let (name, offset) = found.unwrap_or((String::new(), address));
                let word = if self.core.env().long_mode() { 8 } else { 4 };
                stack.push(offset);
                let elements = name.as_bytes().chunks(word);
                let count = elements.len();
                elements.rev().for_each(|bytes| stack.push(little_endian(bytes)));
                stack.push(count as u64);
            }
            _ => return Err(CallkError::Unknown),
        }
        Ok(())
    }
}

/// At most eight bytes as a number.
fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// The instruction pointer in the kernel, then the return addresses that the frame pointers lead to: innermost first.
/// A frame that lies below the one before it, or cannot be read, ends the walk. `at_call` says that the stack pointer is at
/// the return address, which no frame pointer leads to: the frame is not built yet, or not any more.
pub(crate) fn kernel_stack(core: &Core, at_call: bool, most: usize) -> Vec<u64> {
    const SP: usize = 4;
    const BP: usize = 5;
    let env = core.env();
    let mut frames = Vec::new();
    if env.cpl() == 3 || most == 0 {
        return frames;
    }
    frames.push(env.eip());
    let word = if env.long_mode() { 8 } else { 4 };
    let mut caller = [0; 8];
    if at_call && frames.len() < most && core.peek(env.gpr(SP), &mut caller[..word]).is_ok() {
        frames.push(little_endian(&caller));
    }
    let mut frame = env.gpr(BP);
    while frames.len() < most && frame != 0 {
        let mut bytes = [0; 16];
        let Some(pair) = bytes.get_mut(..2 * word) else { break };
        if core.peek(frame, pair).is_err() {
            break;
        }
        let (next, ip) = (little_endian(&pair[..word]), little_endian(&pair[word..]));
        if ip == 0 {
            break;
        }
        frames.push(ip);
        if next <= frame {
            break;
        }
        frame = next;
    }
    frames
}
