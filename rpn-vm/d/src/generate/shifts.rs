//! Shifts: by a constant, and with a sign, which the virtual machine has no instruction for.

use super::Code;
use crate::types::TypeId;
use trapline_rpn::Op;

impl Code<'_> {
    /// A shift of the top by a constant.
    pub(super) fn shift_by(&mut self, op: &str, count: u64, ty: TypeId) {
        if count == 0 {
            return;
        }
        self.emit(if op == "<<" { Op::ShlN } else { Op::ShrN }, count);
        if op == ">>" && self.types.int(ty).1 {
            self.emit(Op::PblN, 64 - count);
        }
    }

    /// A shift to the right of the second element by the top.
    pub(super) fn shift_right(&mut self, signed: bool) {
        self.push(63);
        self.emit(Op::And, 0);
        if !signed {
            self.emit(Op::Xchg, 0);
            self.emit(Op::Shr, 0);
            return;
        }
        // value count: the sign goes to bit 63 - count, and is spread from there.
        self.emit(Op::DupN, 1);
        self.emit(Op::PushTspN, (-2i64) as u64);
        self.emit(Op::Shr, 0);
        self.emit(Op::Xchg, 0);
        self.push(64);
        self.emit(Op::Sub, 0);
        self.emit(Op::Pbl, 0);
        self.emit(Op::Xchg, 0);
        self.drop();
    }
}
