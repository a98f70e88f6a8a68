//! Whether a function has returned to where no call was: its return address was overwritten. What the guest does from there on is
//! chance, so that the crash belongs to the return.

use trapline_emu::Core;

/// Pairs of blocks that are known to be no such return.
const KNOWN: usize = 1 << 12;
/// Most bytes of a call.
const LONGEST_CALL: usize = 7;

/// See the module.
pub struct Returns {
    /// The last pairs of a block and the next one that were looked at.
    known: Box<[(u64, u64)]>,
    /// Where functions begin: code may go there by a return, as Linux does instead of an indirect jump.
    entries: Vec<u64>,
}

impl Returns {
    /// In a guest with functions at these addresses.
    #[must_use]
    pub fn new(entries: impl Iterator<Item = u64>) -> Self {
        let mut entries: Vec<u64> = entries.collect();
        entries.sort_unstable();
        Self { known: vec![(0, 0); KNOWN].into(), entries }
    }

    /// Whether the block before has returned to this one although no call is before it.
    #[inline]
    pub fn is_lost(&mut self, core: &Core, before: u64, at: u64) -> bool {
        let slot = (before.rotate_left(7) ^ at) as usize % KNOWN;
        if self.known.get(slot) == Some(&(before, at)) {
            return false;
        }
        self.look(core, (before, at), slot)
    }

    #[cold]
    fn look(&mut self, core: &Core, pair: (u64, u64), slot: usize) -> bool {
        let is_lost = was_popped(core, pair.1)
            && !is_after_call(core, pair.1)
            && self.entries.binary_search(&pair.1).is_err();
        if let Some(known) = self.known.get_mut(slot).filter(|_| !is_lost) {
            *known = pair;
        }
        is_lost
    }
}

/// Whether an address is the word that is just above the top of the stack, as after a return.
fn was_popped(core: &Core, at: u64) -> bool {
    let env = core.env();
    let mut word = [0; 8];
    let size: u8 = if env.code64() { 8 } else { 4 };
    let top = core.wrap_linear(core.stack().linear(env.gpr(4).wrapping_sub(size.into())));
    let read = word.get_mut(..size.into()).is_some_and(|word| core.peek(top, word).is_ok());
    read && core.wrap_linear(env.cs_base().wrapping_add(u64::from_le_bytes(word))) == core.wrap_linear(at)
}

/// Whether the bytes before an address can be a call.
fn is_after_call(core: &Core, at: u64) -> bool {
    let mut bytes = [0; LONGEST_CALL];
    let first = core.wrap_linear(at.wrapping_sub(LONGEST_CALL as u64));
    core.peek(first, &mut bytes).is_ok() && can_be_call(bytes)
}

/// Whether a call can end bytes: of a relative address (E8), of a far one (9A), or of an operand (FF /2, FF /3).
fn can_be_call(bytes: [u8; LONGEST_CALL]) -> bool {
    let of_operand = |pair: &[u8]| matches!(pair, [0xff, modrm] if matches!(modrm >> 3 & 7, 2 | 3));
    bytes[2] == 0xe8 || bytes[0] == 0x9a || bytes.windows(2).any(of_operand)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_known_by_their_bytes() {
        let calls: [[u8; LONGEST_CALL]; 4] = [
            [0x90, 0x90, 0xe8, 1, 2, 3, 4],
            [0x9a, 1, 2, 3, 4, 8, 0],
            [0x90, 0x90, 0x90, 0x90, 0x41, 0xff, 0xd3],
            [0x90, 0xff, 0x95, 0x10, 0, 0, 0],
        ];
        assert!(calls.into_iter().all(can_be_call));
        assert!(
            ![[0x90; LONGEST_CALL], [0xe8, 1, 2, 3, 4, 0x90, 0x90], [0, 0, 0, 0, 0, 0xff, 0xe0]]
                .into_iter()
                .any(can_be_call)
        );
    }
}
