//! The interface of providers: names of probes, their sites, and the location of their arguments.

mod arguments;

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use trapline_emu::symbols::Parameter;
use trapline_interposer::{Arguments, Condition, Place, Processes};
use trapline_rpn::Argument;
use trapline_trace::ProbeName;

use crate::name::Description;
use crate::target::{Abi, Target};

pub use arguments::{AtEntry, AtOffset, AtReturn, AtTailCall, Back, KernelCode, LOGGED, NoArguments};

/// A place that a probe is armed at.
#[derive(Debug, Clone)]
pub struct Site {
    /// The place: `int3` in the kernel or in a user module, `lock nop`, a timer.
    pub place: Place,
    /// The function that contains it, if it is not the function in the probe's name. (For a tracepoint the name has its
    /// system.)
    pub within: Option<Arc<str>>,
    /// Bytes from the start of the function.
    pub offset: u64,
    /// The byte there; 0 for a site without one.
    pub opcode: u8,
    /// The rule by which it was found, for `list -v`.
    pub rule: &'static str,
    /// When the probe fires there; `None` for every time.
    pub when: Option<Arc<dyn Condition>>,
    /// Defines a handler's `push arg` and `push ret` there.
    pub arguments: Arc<dyn Arguments>,
    /// Those arguments as text, in order, for `list -v`: types or operands; empty if unknown.
    pub shown: Vec<String>,
    /// Whether the stack pointer points to the return address there.
    pub at_call: bool,
    /// Whether the function is left by a tail call there: another function will return its value, later.
    pub tail_call: bool,
}

impl Site {
    /// A site at the first byte of a function, without arguments.
    pub fn new(place: Place, opcode: u8) -> Self {
        Self {
            place,
            within: None,
            offset: 0,
            opcode,
            rule: "",
            when: None,
            arguments: Arc::new(NoArguments),
            shown: Vec::new(),
            at_call: false,
            tail_call: false,
        }
    }

    /// How many of the first `most` arguments the site has.
    pub fn logged(&self, most: u8) -> u8 {
        (0..most).take_while(|n| self.arguments.has(Argument::Number(*n))).count() as u8
    }
}

/// The C type of an argument, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgumentType {
    /// The type that the kernel or the program gives it.
    pub native: String,
    /// The type to which D translates it; empty if it does not.
    pub translated: String,
    /// Its name; empty if it has none.
    pub name: String,
    /// Whether the next argument holds its upper half, because a word of the guest is too short for it.
    pub pair: bool,
}

impl ArgumentType {
    /// An argument without a name.
    pub fn native(native: &str) -> Self {
        Self::translated(native, "")
    }

    /// One that D translates.
    pub fn translated(native: &str, translated: &str) -> Self {
        Self {
            native: native.to_owned(),
            translated: translated.to_owned(),
            name: String::new(),
            pair: false,
        }
    }

    /// One with a name.
    pub fn named(native: &str, name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::native(native) }
    }
}

impl fmt::Display for ArgumentType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let native = Parameter { type_name: self.native.clone(), name: self.name.clone() };
        match self.translated.as_str() {
            "" => f.write_str(&declaration(&native)),
            to => write!(f, "{} as {to}", declaration(&native)),
        }
    }
}

/// A probe: one name, one identifier, one or more sites.
#[derive(Debug, Clone)]
pub struct Probe {
    /// Identifier, from 1, in the order of the names of all probes.
    pub id: u32,
    /// Its name.
    pub name: Arc<ProbeName>,
    /// Its sites, by address.
    pub sites: Vec<Site>,
    /// How many arguments are logged without a handler.
    pub logged: u8,
    /// The processes that it probes; `None` for all, and for the kernel.
    pub processes: Option<Arc<Processes>>,
    /// The types of its arguments, for those that no type information of a file describes.
    pub types: Vec<ArgumentType>,
}

/// An invalid description of a provider's probes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// The provider has no names of this form.
    #[error("'{name}' is an invalid probe name: {why}")]
    InvalidName {
        /// The name.
        name: String,
        /// Why, and what to write.
        why: String,
    },
    /// The provider's own error.
    #[error(transparent)]
    Own(#[from] OwnError),
}

/// An error of the type of one provider.
#[derive(Debug, Clone)]
pub struct OwnError(Arc<dyn Error + Send + Sync>);

impl OwnError {
    /// Wraps a provider's error.
    pub fn new(error: impl Error + Send + Sync + 'static) -> Self {
        Self(Arc::new(error))
    }

    /// The error, if it is of type `E`.
    pub fn downcast<E: Error + 'static>(&self) -> Option<&E> {
        self.0.downcast_ref()
    }
}

/// Errors with the same text are equal.
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

/// A provider. It answers before the guest runs, from the guest's files alone; so the same question has the same
/// answer in every run.
pub trait Provider: fmt::Debug + Send + Sync {
    /// The first field of its probes' names.
    fn name(&self) -> &str;

    /// Number of its identifiers. A provider whose probes are made on request has none; its probes are
    /// numbered after all others.
    fn ids(&self, target: &Target) -> u32;

    /// Whether a description may match its probes, by the first field.
    fn is_meant(&self, wanted: &Description) -> bool {
        wanted.provider(self.name())
    }

    /// Adds the matching probes to `found`, by identifier, counted from 1 within the provider. For a provider
    /// without identifiers they are 0.
    ///
    /// # Errors
    /// The description is invalid for this provider.
    fn find(
        &self,
        target: &Target,
        wanted: &Description,
        found: &mut Vec<Probe>,
    ) -> Result<(), ProviderError>;

    /// For a description that matches no probe of any provider but looks like one of this provider: why.
    fn refusal(&self, target: &Target, wanted: &Description) -> Option<ProviderError> {
        let _ = (target, wanted);
        None
    }

    /// The calling convention at the sites of `probe`, if it was derived from the guest's code.
    fn convention(&self, probe: &Probe) -> Option<Abi> {
        let _ = probe;
        None
    }

    /// Names similar to one that was not found, nearest first, for a message.
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
