//! The three-byte prefix of data of variable length in the log buffer (the paper, section 2; docs/records.md, "What is
//! logged").

/// What follows a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Token {
    /// `log mrf`, bytes.
    Memory = 0x00,
    /// `log str` and names, bytes.
    Text = 0x01,
    /// Stack trace records.
    TraceRecords = 0x02,
    /// Frames of a stack trace record.
    Frames = 0x03,
    /// RPN stack entries, words.
    Entries = 0x04,
    /// `log lv`, words.
    Locals = 0x05,
    /// `log gv`, words.
    Globals = 0x06,
    /// `log`, words.
    Elements = 0x07,
    /// A fault on a selector; its bytes follow.
    SelectorFault = 0xfe,
    /// A fault on a flat address; its bytes follow.
    FlatFault = 0xff,
}

/// A prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    /// What follows.
    pub token: Token,
    /// Its count, in the unit that the token implies.
    pub count: u16,
}

impl Prefix {
    /// Bytes of a prefix.
    pub const SIZE: usize = 3;

    /// The prefix at the start of `bytes`; `None` if the token is unknown or bytes are missing.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let [token, low, high] = *bytes.first_chunk()?;
        let token = match token {
            0x00 => Token::Memory,
            0x01 => Token::Text,
            0x02 => Token::TraceRecords,
            0x03 => Token::Frames,
            0x04 => Token::Entries,
            0x05 => Token::Locals,
            0x06 => Token::Globals,
            0x07 => Token::Elements,
            0xfe => Token::SelectorFault,
            0xff => Token::FlatFault,
            _ => return None,
        };
        Some(Self { token, count: u16::from_le_bytes([low, high]) })
    }

    /// Bytes that follow, with words of `word` bytes; `None` if the token counts records, whose size varies.
    #[must_use]
    pub fn bytes(self, word: usize) -> Option<usize> {
        let count = usize::from(self.count);
        match self.token {
            Token::TraceRecords | Token::Frames => None,
            Token::Entries | Token::Locals | Token::Globals | Token::Elements => Some(count * word),
            _ => Some(count),
        }
    }
}
