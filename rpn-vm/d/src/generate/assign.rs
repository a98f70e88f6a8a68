//! Assignments: `=`, those with an operator, `++` and `--`.

use super::Code;
use crate::node::{Node, Place};
use crate::types::TypeId;
use trapline_rpn::Op;
use trapline_rpn::services::d;

/// What an assignment with an operator leaves on the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaves {
    Nothing,
    /// The value before it.
    Old,
    /// The value after it.
    New,
}

/// An element so many below the top, as `push tsp` and `pop tsp` count.
fn below(count: usize) -> u64 {
    (count as u64).wrapping_neg()
}

impl Code<'_> {
    pub(super) fn assign(&mut self, place: &Place, value: &Node, ty: TypeId, wanted: bool) {
        match place {
            Place::Slot(slot) => {
                self.value(value);
                if wanted {
                    self.emit(Op::DupN, 1);
                }
                self.emit(Op::PopLvN, self.slot(*slot));
            }
            Place::Text { slot, buffer } => {
                self.push(*buffer);
                self.value(value);
                self.call(d::ASSIGN);
                if wanted {
                    self.emit(Op::DupN, 1);
                }
                self.emit(Op::PopLvN, self.slot(*slot));
            }
            Place::Dynamic { number, keys } => {
                self.value(value);
                if wanted {
                    self.emit(Op::DupN, 1);
                }
                self.keys(keys);
                self.push(u64::from(*number));
                self.call(d::PUT);
            }
            Place::Memory { address, .. } if self.types.by_reference(ty) => {
                self.address_under(address, value);
                if wanted {
                    self.emit(Op::PushTspN, below(1));
                    self.emit(Op::PushTspN, below(1));
                }
                self.push(self.types.size(ty));
                let text = self.types.is_char_array(ty) && !self.types.is_char_array(value.ty);
                self.push(match (self.types.is_string(ty), text) {
                    (true, _) => d::COPY_STRING,
                    (false, true) => d::COPY_TEXT,
                    (false, false) => d::COPY_BYTES,
                });
                self.call(d::COPY);
                if wanted {
                    self.drop();
                }
            }
            Place::Memory { address, bits } => {
                if wanted {
                    self.value(value);
                    self.target(address);
                    self.emit(Op::PushTspN, below(1));
                } else {
                    self.address_under(address, value);
                }
                match bits {
                    None => self.store(ty),
                    Some(bits) => self.store_bits(*bits, ty),
                }
            }
        }
    }

    /// The value that is assigned, above the address where it goes; the value is evaluated first.
    fn address_under(&mut self, address: &Node, value: &Node) {
        if address.constant().or(value.constant()).is_some() {
            self.target(address);
            self.value(value);
        } else {
            self.value(value);
            self.target(address);
            self.emit(Op::Xchg, 0);
        }
    }

    /// `+=` and the like. The place is found once, and read before the value is evaluated.
    pub(super) fn update(
        &mut self,
        place: &Place,
        op: &'static str,
        value: &Node,
        (ty, leaves): (TypeId, Leaves),
    ) {
        let compute = if self.types.is_pointer(ty) { ty } else { value.ty };
        match place {
            Place::Slot(slot) | Place::Text { slot, .. } => {
                self.emit(Op::PushLvN, self.slot(*slot));
                self.combine(op, value, (compute, ty), leaves);
                self.emit(Op::PopLvN, self.slot(*slot));
            }
            Place::Dynamic { number, keys } => {
                self.keys(keys);
                self.again(keys.len(), 0);
                self.push(u64::from(*number));
                self.call(d::GET);
                self.combine(op, value, (compute, ty), leaves);
                // What is left lies between the keys and the new value.
                let left = usize::from(leaves != Leaves::Nothing);
                self.again(keys.len(), left + 1);
                self.push(u64::from(*number));
                self.call(d::PUT);
                self.drop_under(keys.len(), left);
            }
            Place::Memory { bits, .. } => {
                self.address(place);
                self.emit(Op::DupN, 1);
                match bits {
                    Some(bits) => self.fetch_bits(*bits, ty),
                    None => self.fetch(ty),
                }
                self.combine(op, value, (compute, ty), leaves);
                let left = usize::from(leaves != Leaves::Nothing);
                self.emit(Op::PushTspN, below(left + 1));
                self.emit(Op::Xchg, 0);
                match bits {
                    Some(bits) => self.store_bits(*bits, ty),
                    None => self.store(ty),
                }
                self.drop_under(1, left);
            }
        }
    }

    /// Pushes `count` elements again; so many lie above them.
    fn again(&mut self, count: usize, above: usize) {
        for _ in 0..count {
            self.emit(Op::PushTspN, below(count + above - 1));
        }
    }

    /// Drops `count` elements from under the top, or on top if nothing is left above them.
    fn drop_under(&mut self, count: usize, left: usize) {
        match (count, left) {
            (0, _) => {}
            (count, 0) => self.emit(Op::Ros, count as u64),
            (count, _) => {
                self.emit(Op::PopTspN, below(count));
                if count > 1 {
                    self.emit(Op::Ros, count as u64 - 1);
                }
            }
        }
    }

    /// Applies an operator to the top, which is the value of a place, and a value; what is to be left lies under the result.
    fn combine(&mut self, op: &str, value: &Node, (compute, ty): (TypeId, TypeId), leaves: Leaves) {
        if leaves == Leaves::Old {
            self.emit(Op::DupN, 1);
        }
        self.cut_to(compute, ty);
        self.value(value);
        self.arithmetic(op, compute);
        self.cut(ty);
        if leaves == Leaves::New {
            self.emit(Op::DupN, 1);
        }
    }

    /// Converts a value of the place's type to the type of the computation.
    fn cut_to(&mut self, compute: TypeId, ty: TypeId) {
        let (from, to) = (self.types.int(ty), self.types.int(compute));
        if to.0 < 8 && (from.0 > to.0 || from.1 != to.1) {
            self.cut(compute);
        }
    }
}
