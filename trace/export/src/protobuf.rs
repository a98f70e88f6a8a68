//! Messages in the wire format of protocol buffers.

/// Wire types.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;

/// A message, field by field.
#[derive(Debug, Clone, Default)]
pub(crate) struct Message {
    bytes: Vec<u8>,
}

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    /// A field of type uint32, uint64, bool or an enumeration.
    pub fn number(&mut self, field: u32, value: u64) {
        self.varint(u64::from(field) << 3 | VARINT);
        self.varint(value);
    }

    /// A field of type int32 or int64.
    pub fn signed(&mut self, field: u32, value: i64) {
        self.number(field, value.cast_unsigned());
    }

    /// A field of type fixed64.
    pub fn fixed(&mut self, field: u32, value: u64) {
        self.varint(u64::from(field) << 3 | FIXED64);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// A field of type double.
    pub fn double(&mut self, field: u32, value: f64) {
        self.fixed(field, value.to_bits());
    }

    /// A field of type string or bytes, or an encoded message.
    pub fn data(&mut self, field: u32, data: &[u8]) {
        self.varint(u64::from(field) << 3 | LENGTH);
        self.varint(data.len() as u64);
        self.bytes.extend_from_slice(data);
    }

    /// A field of type string.
    pub fn text(&mut self, field: u32, text: &str) {
        self.data(field, text.as_bytes());
    }

    /// A field that is a message.
    pub fn message(&mut self, field: u32, message: &Self) {
        self.data(field, &message.bytes);
    }

    /// The encoded fields.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_encoded_as_the_specification_shows() {
        // The examples of the encoding's description: 150 in field 1, "testing" in field 2, a message in field 3.
        let mut inner = Message::default();
        inner.number(1, 150);
        assert_eq!(inner.bytes(), [0x08, 0x96, 0x01]);
        let mut outer = Message::default();
        outer.text(2, "testing");
        outer.message(3, &inner);
        let right = [&[0x12, 0x07][..], b"testing", &[0x1a, 0x03, 0x08, 0x96, 0x01]].concat();
        assert_eq!(outer.bytes(), right);
        let mut minus = Message::default();
        minus.signed(1, -2);
        assert_eq!(minus.bytes(), [0x08, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
    }
}
