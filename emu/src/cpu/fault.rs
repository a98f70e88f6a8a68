//! Faults: what an instruction raises in place of its effect.

/// Exception vectors the machine itself raises.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Vector {
    Divide = 0,
    Debug = 1,
    Nmi = 2,
    Breakpoint = 3,
    InvalidOpcode = 6,
    DeviceNotAvailable = 7,
    DoubleFault = 8,
    InvalidTss = 10,
    NotPresent = 11,
    Stack = 12,
    GeneralProtection = 13,
    Page = 14,
    FloatingPoint = 16,
    SimdFloatingPoint = 19,
}

/// A fault to deliver: the instruction at EIP has not happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Exception vector.
    pub vector: u8,
    /// Error code, for vectors that have one.
    pub error: Option<u32>,
    /// CR2's new value, for #PF.
    pub cr2: Option<u64>,
}

impl Fault {
    /// #GP with an error code.
    pub fn gp(error: u32) -> Self {
        Fault { vector: Vector::GeneralProtection as u8, error: Some(error), cr2: None }
    }
    /// #PF.
    pub fn page(error: u32, address: u64) -> Self {
        Fault { vector: Vector::Page as u8, error: Some(error), cr2: Some(address) }
    }
    /// The fault that this one becomes for an access to the stack: a non-canonical address there raises #SS(0).
    #[must_use]
    pub fn on_stack(self) -> Self {
        let stack = Vector::Stack as u8;
        Fault {
            vector: if self.vector == Vector::GeneralProtection as u8 { stack } else { self.vector },
            ..self
        }
    }
    /// #UD.
    pub fn ud() -> Self {
        Self::without_code(Vector::InvalidOpcode)
    }
    /// #DB in place of an instruction.
    pub(crate) fn debug() -> Self {
        Self::without_code(Vector::Debug)
    }
    /// An exception without an error code.
    pub(in crate::cpu) fn without_code(vector: Vector) -> Self {
        Fault { vector: vector as u8, error: None, cr2: None }
    }
    /// An exception with an error code.
    pub(super) fn with(vector: Vector, error: u32) -> Self {
        Fault { vector: vector as u8, error: Some(error), cr2: None }
    }
}

/// Why a delivery or a task switch did not succeed.
pub(super) enum Failed {
    /// Another exception.
    Nested(Fault),
    /// A feature that the machine does not support.
    Unsupported(String),
}

impl From<Fault> for Failed {
    fn from(f: Fault) -> Self {
        Failed::Nested(f)
    }
}
