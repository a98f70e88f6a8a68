//! The conditions of Jcc and SETcc.

use iced_x86::ConditionCode;

/// Whether a condition holds for these flags (SDM volume 1, appendix B).
pub fn condition_holds(condition: ConditionCode, flags: u64) -> bool {
    use ConditionCode as C;
    let bit = |n: u32| flags >> n & 1 != 0;
    let (cf, pf, zf, sf, of) = (bit(0), bit(2), bit(6), bit(7), bit(11));
    match condition {
        C::None => true,
        C::o => of,
        C::no => !of,
        C::b => cf,
        C::ae => !cf,
        C::e => zf,
        C::ne => !zf,
        C::be => cf || zf,
        C::a => !cf && !zf,
        C::s => sf,
        C::ns => !sf,
        C::p => pf,
        C::np => !pf,
        C::l => sf != of,
        C::ge => sf == of,
        C::le => zf || sf != of,
        C::g => !zf && sf == of,
    }
}
