//! The stored form of device states.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A device whose state can be stored: plain data, without the host resources that the device is attached to.
pub(crate) trait Stored: Serialize + DeserializeOwned {
    /// The device's name in messages.
    const NAME: &str;
    /// The version of the stored form: one more whenever a field is added, removed, or means something else.
    const VERSION: u16;

    /// Whether a state read from a file is one that the device can be in. Fields whose every value is harmless are not
    /// checked.
    fn is_sound(&self) -> bool {
        true
    }
}

/// Arrays of bytes that are too long for serde's own implementation.
pub(crate) mod bytes {
    use super::{Deserialize, Serialize};
    use serde::de::Error;
    use serde::{Deserializer, Serializer};

    pub fn serialize<S: Serializer, const N: usize>(bytes: &[u8; N], to: S) -> Result<S::Ok, S::Error> {
        bytes.as_slice().serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>, const N: usize>(from: D) -> Result<[u8; N], D::Error> {
        let bytes = Vec::<u8>::deserialize(from)?;
        let length = bytes.len();
        bytes.try_into().map_err(|_| D::Error::invalid_length(length, &"the length of the array"))
    }
}
