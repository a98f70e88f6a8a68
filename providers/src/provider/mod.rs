//! What a provider is: someone who knows names of probes, where they are and how to find their arguments.

mod arguments;

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use trapline_emu::symbols::Parameter;
use trapline_interposer::{Arguments, Place, Processes};
use trapline_rpn::Argument;
use trapline_trace::ProbeName;

use crate::name::Description;
use crate::target::{Abi, Target};

pub use arguments::{AtEntry, AtOffset, AtReturn, AtTailCall, LOGGED};

/// A place that a probe is armed at.
#[derive(Debug, Clone)]
pub struct Site {
    /// Where: `int3` in the kernel or in a user module, `lock nop`, the clock.
    pub place: Place,
    /// The function that it is in, if that is not the probe's own: a tracepoint's is its system.
    pub within: Option<Arc<str>>,
    /// Bytes from the start of the function.
    pub offset: u64,
    /// The byte there; 0 where there is none.
    pub opcode: u8,
    /// The rule by which it was found, for `list -v`.
    pub rule: &'static str,
    /// What a handler's `push arg` and `push ret` mean there.
    pub arguments: Arc<dyn Arguments>,
    /// Those arguments in words, in order, for `list -v`: types, operands; empty where they are not known.
    pub shown: Vec<String>,
    /// Whether the stack pointer is at the return address there.
    pub at_call: bool,
    /// Whether the function is left by a tail call there: another function will return its value, later.
    pub tail_call: bool,
}

impl Site {
    /// How many of the first `most` arguments the site has.
    pub fn logged(&self, most: u8) -> u8 {
        (0..most).take_while(|n| self.arguments.has(Argument::Number(*n))).count() as u8
    }
}

/// A probe: one name, one identifier, one site or more.
#[derive(Debug, Clone)]
pub struct Probe {
    /// Identifier, from 1, in the order of the names of all probes that there are.
    pub id: u32,
    /// Its name.
    pub name: Arc<ProbeName>,
    /// Where it is, by address.
    pub sites: Vec<Site>,
    /// How many arguments are logged when no handler is given.
    pub logged: u8,
    /// The processes that it is of; `None` for all, and the kernel.
    pub processes: Option<Arc<Processes>>,
}

/// A provider cannot say which probes are meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// A name that the provider's names cannot be.
    #[error("'{name}' is an invalid probe name: {why}")]
    InvalidName {
        /// The name.
        name: String,
        /// What would be right.
        why: String,
    },
    /// The provider's own error.
    #[error(transparent)]
    Own(#[from] OwnError),
}

/// An error of one provider's own type.
#[derive(Debug, Clone)]
pub struct OwnError(Arc<dyn Error + Send + Sync>);

impl OwnError {
    /// Of a provider's error.
    pub fn new(error: impl Error + Send + Sync + 'static) -> Self {
        Self(Arc::new(error))
    }

    /// The error, if it is of type `E`.
    pub fn downcast<E: Error + 'static>(&self) -> Option<&E> {
        self.0.downcast_ref()
    }
}

/// Errors with one text are one error.
impl PartialEq for OwnError {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_string() == other.0.to_string()
    }
}

impl Eq for OwnError {}

impl fmt::Display for OwnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for OwnError {}

/// A provider. It is asked before the guest runs, and by the guest's files alone; so the same question has the same
/// answer in every run.
pub trait Provider: fmt::Debug + Send + Sync {
    /// The first field of its probes' names.
    fn name(&self) -> &str;

    /// How many identifiers are its own. A provider whose probes are made by being asked for has none; its probes are
    /// numbered behind all others.
    fn ids(&self, target: &Target) -> u32;

    /// Whether a description may mean probes of it, by its first field.
    fn is_meant(&self, wanted: &Description) -> bool {
        wanted.provider(self.name())
    }

    /// Adds the probes that are meant to `found`, by identifier, as counted from 1 within the provider; of a provider
    /// without identifiers of its own they are 0.
    ///
    /// # Errors
    /// The description cannot be of this provider's probes.
    fn find(
        &self,
        target: &Target,
        wanted: &Description,
        found: &mut Vec<Probe>,
    ) -> Result<(), ProviderError>;

    /// Why a description that no provider has a probe for cannot mean one of this provider's, though it seems to.
    fn refusal(&self, wanted: &Description) -> Option<ProviderError> {
        let _ = wanted;
        None
    }

    /// By which convention the arguments at a site of `probe` are found, where the guest's code had to tell.
    fn convention(&self, probe: &Probe) -> Option<Abi> {
        let _ = probe;
        None
    }

    /// Names that resemble what was asked for in vain, the nearest first, for a message.
    fn near(&self, target: &Target, wanted: &Description) -> Vec<String> {
        let _ = (target, wanted);
        Vec::new()
    }
}

/// A parameter as C declares it.
pub(crate) fn declaration(Parameter { type_name, name }: &Parameter) -> String {
    let space = if name.is_empty() || type_name.ends_with('*') { "" } else { " " };
    format!("{type_name}{space}{name}")
}
