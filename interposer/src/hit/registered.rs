//! Services of `callk` that a program which embeds Trapline registers by name (docs/embedding.md, "Services of your own").
//!
//! A service declares what it pops and pushes, and whether it can change the guest. The verifier believes the declaration,
//! which is a part of the service's number ([`services::observes`]); here it is enforced: a service gets exactly its arguments
//! and its results, and one that only observes has no way to write.

use std::fmt;
use std::sync::Arc;

use trapline_rpn::{CallkError, CallkStack, Context, Fault, Host, Reg, services};

/// Most elements that a service pops, and most that it pushes.
pub const MOST_ELEMENTS: usize = 16;

/// The code of a service.
type Code = dyn Fn(&mut ServiceCall<'_>) -> Result<(), Thrown> + Send + Sync;

/// What a service throws: USER_EX with this u-field and parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Thrown {
    /// Bits 31..16 of the exception code.
    pub user: u16,
    /// The parameters.
    pub parameters: [u64; 2],
}

/// What a service can do to the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceEffect {
    /// It only reads: a handler that calls it stays observe-only.
    Observes,
    /// It may write memory and registers.
    Changes,
}

/// A service that handlers call by its name.
///
/// It must do the same for the same arguments and the same state of the guest: a run is repeated for journeys into the past,
/// and when a recording is replayed.
#[derive(Clone)]
pub struct Service {
    name: Arc<str>,
    takes: usize,
    gives: usize,
    effect: ServiceEffect,
    code: Arc<Code>,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Service({}: {} -- {}, {:?})", self.name, self.takes, self.gives, self.effect)
    }
}

impl Service {
    /// A service that pops `takes` elements and pushes `gives`.
    pub fn new(
        name: &str,
        (takes, gives): (usize, usize),
        effect: ServiceEffect,
        code: impl Fn(&mut ServiceCall<'_>) -> Result<(), Thrown> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), takes, gives, effect, code: Arc::new(code) }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// The services of a session, each with its number: that of its place in the list, and of its effect.
#[derive(Debug, Clone, Default)]
pub struct Services(Arc<[Service]>);

/// Why a service cannot be registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServiceError {
    /// A name that cannot be written.
    #[error("{0:?} cannot be the name of a service: use letters, digits and _, and begin with no digit")]
    Name(String),
    /// A second one of that name.
    #[error("the service {0} is registered already")]
    Twice(String),
    /// Too many elements.
    #[error("the service {0} pops or pushes more than {MOST_ELEMENTS} elements")]
    Elements(String),
}

impl Services {
    /// All services.
    ///
    /// # Errors
    /// The first that cannot be registered.
    pub fn new(list: &[Service]) -> Result<Self, ServiceError> {
        for (n, service) in list.iter().enumerate() {
            let name = service.name().to_owned();
            let right = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.is_empty() || !name.chars().all(right) || name.starts_with(|c: char| c.is_ascii_digit()) {
                return Err(ServiceError::Name(name));
            }
            if list.iter().take(n).any(|other| other.name == service.name) {
                return Err(ServiceError::Twice(name));
            }
            if service.takes.max(service.gives) > MOST_ELEMENTS {
                return Err(ServiceError::Elements(name));
            }
        }
        Ok(Self(list.into()))
    }

    /// The number of a service.
    pub fn number(&self, name: &str) -> Option<u64> {
        let at = self.0.iter().position(|service| service.name() == name)?;
        let first = match self.0.get(at)?.effect {
            ServiceEffect::Observes => services::OBSERVING,
            ServiceEffect::Changes => services::CHANGING,
        };
        Some(first + at as u64)
    }

    /// The names of all services.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(Service::name)
    }

    /// The service with a number.
    fn get(&self, number: u64) -> Option<&Service> {
        let (first, effect) = match number {
            services::CHANGING.. => (services::CHANGING, ServiceEffect::Changes),
            _ => (services::OBSERVING, ServiceEffect::Observes),
        };
        let at = usize::try_from(number.checked_sub(first)?).ok()?;
        self.0.get(at).filter(|service| service.effect == effect)
    }

    /// Calls a service.
    pub(crate) fn call(
        &self,
        number: u64,
        stack: &mut dyn CallkStack,
        host: &mut dyn Host,
    ) -> Result<(), CallkError> {
        let service = self.get(number).ok_or(CallkError::Unknown)?;
        let (mut arguments, mut results) = ([0; MOST_ELEMENTS], [0; MOST_ELEMENTS]);
        let (arguments, results) = (&mut arguments[..service.takes], &mut results[..service.gives]);
        arguments.fill_with(|| stack.pop());
        let writes = service.effect == ServiceEffect::Changes;
        let mut call = ServiceCall { arguments, results, host, writes };
        (service.code)(&mut call).map_err(|Thrown { user, parameters: [parm1, parm2] }| {
            CallkError::Throw { user, parm1, parm2 }
        })?;
        call.results.iter().for_each(|value| stack.push(*value));
        Ok(())
    }
}

/// A call of a service by a handler.
pub struct ServiceCall<'a> {
    arguments: &'a [u64],
    results: &'a mut [u64],
    host: &'a mut dyn Host,
    writes: bool,
}

impl ServiceCall<'_> {
    /// What was popped: the element that was on top first.
    pub fn arguments(&self) -> &[u64] {
        self.arguments
    }

    /// What will be pushed, in this order: the last one will be on top. All are 0 at first.
    pub fn results(&mut self) -> &mut [u64] {
        self.results
    }

    /// Reads the guest's memory at a linear address: all of `to`, or nothing. It never faults into the guest.
    ///
    /// # Errors
    /// The first address that cannot be read.
    pub fn read(&mut self, address: u64, to: &mut [u8]) -> Result<(), Fault> {
        self.host.read_mem(address, to)
    }

    /// A register of the processor at the hit, of at most one word.
    pub fn register(&mut self, register: Reg) -> u64 {
        self.host.read_reg(Context::Current, register)
    }

    /// The id of the current process.
    pub fn pid(&mut self) -> u64 {
        self.host.pid()
    }

    /// Writes the guest's memory, as `pop mem` does: all of `data`, or nothing.
    ///
    /// # Errors
    /// The first address that cannot be written; the given one if the service has declared that it only observes.
    pub fn write(&mut self, address: u64, data: &[u8]) -> Result<(), Fault> {
        if self.writes { self.host.write_mem(address, data) } else { Err(Fault(address)) }
    }

    /// Sets a register that `pop r` can set. Returns false if it could not, or if the service has declared that it only observes.
    pub fn set_register(&mut self, register: Reg, value: u64) -> bool {
        self.writes && self.host.write_reg(Context::Current, register, value)
    }
}
