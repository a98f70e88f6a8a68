//! A D program as text: everything from which it is compiled again, in another process too.
//!
//! Not here: the preprocessor, which has seen the texts already, and the compiler.

use serde::{Deserialize, Serialize};

/// The texts of a D program, which share their variables, and the options of its command line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DSource {
    /// Its texts, in order.
    pub texts: Vec<DText>,
    /// The options of `-x`, in order. Flags have the value 1.
    pub options: Vec<(String, String)>,
    /// What `$1`, `$2` and so on stand for.
    pub arguments: Vec<Vec<u8>>,
}

/// A text of a D program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DText {
    /// The path of its file, or the descriptions of its first clause.
    pub name: String,
    /// Whether it is a file.
    pub is_file: bool,
    /// The text, preprocessed.
    pub text: Vec<u8>,
}

impl DText {
    /// The text of clauses, as `-n` takes it.
    pub fn clauses(text: &str) -> Self {
        let name = text.split(['{', '/']).next().unwrap_or_default().trim().to_owned();
        Self { name, is_file: false, text: text.as_bytes().to_vec() }
    }

    /// What `$0` is in it.
    pub fn zeroth(&self) -> Vec<u8> {
        if self.is_file { self.name.clone().into_bytes() } else { b"dtrace".to_vec() }
    }
}

impl DSource {
    /// A program of clauses, as `-n` takes it.
    ///
    /// ```
    /// use trapline_session::{Command, Condition, DSource, GuestBuilder, Limits};
    ///
    /// let mut session = GuestBuilder::embedded("ia32").memory(32 << 20).start()?;
    /// session.apply(Command::D(DSource::clauses("fbt::do_fork:entry { @[probefunc] = count(); }")))?;
    /// session.run_until(&Condition::end(), &Limits::none());
    /// let ends = session.d_ends();
    /// assert_eq!(ends[0].aggregations[0].entries.len(), 1);
    /// # Ok::<(), trapline_session::Error>(())
    /// ```
    pub fn clauses(text: &str) -> Self {
        Self { texts: vec![DText::clauses(text)], ..Self::default() }
    }

    /// The name of the program: those of its texts.
    pub fn name(&self) -> String {
        let name = |text: &DText| {
            if text.is_file { text.name.clone() } else { format!("-n {}", text.name) }
        };
        self.texts.iter().map(name).collect::<Vec<_>>().join(", ")
    }
}
