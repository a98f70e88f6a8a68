//! Values that leave the process, each with the version of its format.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeStruct, Serializer};

/// The version of commands and replies that this build writes, and the newest that it reads. Within a version, variants
/// and fields are added, never changed.
pub const VERSION: u32 = 1;

/// A value with the version of its format. A version that is newer than [`VERSION`] is refused when it is read.
///
/// ```
/// use trapline_session::{Command, Versioned};
///
/// let text = serde_json::to_string(&Versioned(Command::Query))?;
/// assert_eq!(text, r#"{"version":1,"value":"Query"}"#);
/// let Versioned(command): Versioned<Command> = serde_json::from_str(&text)?;
/// assert!(matches!(command, Command::Query));
/// let newer: Result<Versioned<Command>, _> = serde_json::from_str(r#"{"version":2,"value":"Dance"}"#);
/// assert!(newer.unwrap_err().to_string().starts_with("version 2 is newer than 1"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versioned<T>(pub T);

const FIELDS: [&str; 2] = ["version", "value"];

impl<T: Serialize> Serialize for Versioned<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("Versioned", FIELDS.len())?;
        out.serialize_field("version", &VERSION)?;
        out.serialize_field("value", &self.0)?;
        out.end()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Versioned<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_struct("Versioned", &FIELDS, Reader(PhantomData))
    }
}

/// Reads the version first, since the form of the value depends on it.
struct Reader<T>(PhantomData<T>);

fn check<E: de::Error>(version: u32) -> Result<(), E> {
    match version {
        1..=VERSION => Ok(()),
        0 => Err(E::custom("there is no version 0")),
        newer => Err(E::custom(format_args!(
            "version {newer} is newer than {VERSION}, the newest that this build of Trapline reads"
        ))),
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Reader<T> {
    type Value = Versioned<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a version and a value")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        check(seq.next_element()?.ok_or_else(|| de::Error::missing_field("version"))?)?;
        let value = seq.next_element()?.ok_or_else(|| de::Error::missing_field("value"))?;
        Ok(Versioned(value))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        if map.next_key::<String>()?.as_deref() != Some("version") {
            return Err(de::Error::custom("the version must come first"));
        }
        check(map.next_value()?)?;
        if map.next_key::<String>()?.as_deref() != Some("value") {
            return Err(de::Error::missing_field("value"));
        }
        Ok(Versioned(map.next_value()?))
    }
}
