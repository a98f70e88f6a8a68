//! The variables of a running program, by name, for a view.

use super::Runtime;
use super::dynamics::{element_value, thread_of, variable_of};
use serde::{Deserialize, Serialize};
use trapline_trace::d::{Dynamic, Field, Home, ShowSymbols, Variable, Writer, written_values};

/// Bytes of the number and the thread before the fields of an element's key.
const BEFORE_KEY: usize = 12;
/// Most bytes of a variable that are shown.
const MOST_BYTES: usize = 64;

/// A variable of a D program at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DVariable {
    /// Its name as in a program: `x`, `self->x`, `this->x`.
    pub name: String,
    /// The address of the task to which it belongs, if each thread has its own.
    pub thread: Option<u64>,
    /// The keys, if it is an element of an associative array.
    pub keys: Vec<String>,
    /// Its value.
    pub value: String,
}

/// Reads guest memory; false if an address cannot be read.
pub(crate) type ReadGuest<'a> = &'a dyn Fn(u64, &mut [u8]) -> bool;

impl Runtime {
    /// The variables, at most this many: those with one value, then the elements that there are. `lv` are the program's
    /// local variables.
    pub fn variables(
        &self,
        lv: &[u64],
        most: usize,
        read: ReadGuest<'_>,
        symbols: ShowSymbols<'_>,
    ) -> Vec<DVariable> {
        let tables = &self.setup.tables;
        let single = tables.variables.iter().map(|variable| DVariable {
            name: variable.name.clone(),
            thread: None,
            keys: Vec::new(),
            value: self.single(variable, lv, read, symbols),
        });
        let elements = self.dynamics.all().filter_map(|(key, value)| {
            let table = tables.dynamics.get(variable_of(key) as usize)?;
            Some(DVariable {
                name: format!("{}{}", if table.thread { "self->" } else { "" }, table.name),
                thread: table.thread.then(|| thread_of(key)),
                keys: written_values(&table.keys, key.get(BEFORE_KEY..)?, symbols),
                value: self.element(table, value, read, symbols),
            })
        });
        single.chain(elements).take(most).collect()
    }

    fn single(
        &self,
        variable: &Variable,
        lv: &[u64],
        read: ReadGuest<'_>,
        symbols: ShowSymbols<'_>,
    ) -> String {
        match (variable.home, variable.value) {
            (Home::Memory(address), Field::Bytes(size)) => {
                let bytes = self.bytes(address, (size as usize).min(MOST_BYTES)).unwrap_or_default();
                shown(Field::Bytes(size), |to| to.bytes(bytes), symbols)
            }
            (Home::Memory(address), field) => {
                let bytes = self.bytes(address, 8).and_then(<[u8]>::first_chunk);
                self.word(field, bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes)), read, symbols)
            }
            (Home::Slot(slot), field) => {
                self.word(field, lv.get(slot as usize).copied().unwrap_or(0), read, symbols)
            }
        }
    }

    fn element(
        &self,
        table: &Dynamic,
        value: &[u8],
        read: ReadGuest<'_>,
        symbols: ShowSymbols<'_>,
    ) -> String {
        if table.string {
            let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
            return shown(Field::Str, |to| to.bytes(value.get(..end).unwrap_or_default()), symbols);
        }
        if table.reference {
            let bytes = value.get(..value.len().min(MOST_BYTES)).unwrap_or_default();
            return shown(Field::Bytes(table.size), |to| to.bytes(bytes), symbols);
        }
        self.word(table.value, element_value(value), read, symbols)
    }

    /// A value of eight bytes; of a string, its address.
    fn word(&self, field: Field, value: u64, read: ReadGuest<'_>, symbols: ShowSymbols<'_>) -> String {
        match field {
            Field::Str => {
                let text = self.string(value, read);
                shown(field, |to| to.bytes(&text), symbols)
            }
            Field::Int { .. } | Field::Float(_) => shown(field, |to| to.int(value), symbols),
            Field::Return(_) => value.to_string(),
            Field::Symbol(_) => symbols.address(value).unwrap_or_else(|| format!("{value:#x}")),
            Field::Bytes(_) | Field::Stack => format!("{value:#x}"),
        }
    }

    /// The string at an address, as far as it can be read.
    fn string(&self, address: u64, read: ReadGuest<'_>) -> Vec<u8> {
        let one = |at: u64| {
            let mut byte = [0];
            let own = self.read(address.wrapping_add(at), &mut byte);
            let there = own.map_or_else(|| read(address.wrapping_add(at), &mut byte), |own| own.is_ok());
            Some(byte[0]).filter(|byte| there && *byte != 0)
        };
        (0..self.setup.limits.strsize as u64).map_while(one).collect()
    }
}

/// A value as text, once it is written.
fn shown(field: Field, write: impl FnOnce(&mut Writer), symbols: ShowSymbols<'_>) -> String {
    let mut writer = Writer::default();
    write(&mut writer);
    written_values(&[field], writer.written(), symbols).pop().unwrap_or_default()
}
