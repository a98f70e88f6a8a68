//! A probe program in a serialized command: its PPDF file, as hexadecimal digits where people may read it.

use serde::de::{self, Visitor};
use serde::{Deserializer, Serializer, ser};
use std::fmt;
use trapline_rpn::Program;
use trapline_rpn::ppdf::{self, Ppdf};

/// The program as PPDF, with the signature that it was read with.
pub fn serialize<S: Serializer>(program: &Program, serializer: S) -> Result<S::Ok, S::Error> {
    let bytes = ppdf::write_as_read(program).map_err(ser::Error::custom)?;
    if !serializer.is_human_readable() {
        return serializer.serialize_bytes(&bytes);
    }
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    serializer.serialize_str(&digits)
}

/// The program of a PPDF file.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<Program>, D::Error> {
    if deserializer.is_human_readable() {
        deserializer.deserialize_str(Reader)
    } else {
        deserializer.deserialize_bytes(Reader)
    }
}

struct Reader;

impl Visitor<'_> for Reader {
    type Value = Box<Program>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a PPDF file")
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Self::Value, E> {
        Ppdf::read(bytes).map(|file| Box::new(file.program)).map_err(E::custom)
    }

    fn visit_str<E: de::Error>(self, digits: &str) -> Result<Self::Value, E> {
        let byte = |at: usize| digits.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
        let bytes: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(byte).collect();
        let bytes = bytes.ok_or_else(|| E::custom("a probe program must be pairs of hexadecimal digits"))?;
        self.visit_bytes(&bytes)
    }
}
