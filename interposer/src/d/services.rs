//! The services that compiled clauses call, by number.

use super::{Failure, Reading, Runtime, World, bad_address, dynamics, thrown};
use std::sync::Arc;
use trapline_os::Birth;
use trapline_rpn::services::ASSERTION;
use trapline_rpn::services::d::{self, Builtin, COPY_STRING, COPY_TEXT, Function, fault};
use trapline_rpn::{CallkError, CallkStack};
use trapline_trace::d::{Action, Code, Field, FixedKey, FixedKeys, Writer};

/// Longest string that is read, whatever `strsize` says.
const LONGEST: usize = 1 << 20;
/// Fields that need no memory of their own.
const FEW: usize = 8;

/// What the value of an element is.
#[derive(Clone, Copy)]
struct Shape {
    /// Bytes that it takes, and that count towards `dynvarsize`.
    size: usize,
    counted: usize,
    /// Whether it is handled by its address, and whether it is a string.
    reference: bool,
    string: bool,
}

/// An address with what it lies in; as a key of an aggregation, the start of what it is shown as.
fn located(field: Field, address: u64, is_key: bool, world: &mut dyn World) -> Code {
    let code = world.code(address, matches!(field, Field::Symbol(_)));
    match field {
        Field::Symbol(form) | Field::Return(Some(form)) if is_key => world.start(form, code),
        _ => code,
    }
}

impl Runtime {
    /// Calls a service.
    pub fn service(
        &mut self,
        number: u64,
        stack: &mut dyn CallkStack,
        world: &mut dyn World,
    ) -> Result<(), CallkError> {
        match number {
            d::AGGREGATE_FIXED => return self.aggregate_fixed(stack, world),
            d::AGGREGATE => return self.aggregate(stack, world),
            d::GET | d::PUT | d::REFERENCE => return self.dynamic(number, stack, world),
            d::BUILTIN => return self.builtin(stack, world),
            _ => {}
        }
        // Those above leave nothing that the next clause must not find.
        self.hot.used = true;
        match number {
            d::RECORD => self.add_part(stack, world),
            d::STORE => {
                let (size, value, address) = (stack.pop(), stack.pop(), stack.pop());
                let bytes = value.to_le_bytes();
                self.write(address, bytes.get(..size as usize).unwrap_or(&bytes))
            }
            d::COPY => self.copy(stack, world),
            d::ASSIGN => self.assign(stack, world),
            d::CALL => self.call(stack, world),
            d::CHANGE => self.change(stack, world),
            d::DTI => self.dti(stack, world),
            d::LESS => {
                let (b, a) = (stack.pop() as i64, stack.pop() as i64);
                stack.push(u64::from(a < b));
                Ok(())
            }
            d::BELOW => {
                let (b, a) = (stack.pop(), stack.pop());
                stack.push(u64::from(a < b));
                Ok(())
            }
            _ => Err(CallkError::Unknown),
        }
    }

    /// Reads memory of D or of the guest.
    pub(super) fn fetch(&self, address: u64, to: &mut [u8], world: &mut dyn World) -> Result<(), Failure> {
        let read = self.read(address, to).unwrap_or_else(|| world.read(address, to));
        read.map_err(bad_address)
    }

    /// The string at an address, without its end, and no longer than `strsize`.
    pub(super) fn text(&self, address: u64, world: &mut dyn World) -> Result<Vec<u8>, Failure> {
        self.text_up_to(address, self.setup.limits.strsize, world)
    }

    pub(super) fn text_up_to(
        &self,
        address: u64,
        most: usize,
        world: &mut dyn World,
    ) -> Result<Vec<u8>, Failure> {
        let mut text = Vec::new();
        while text.len() < most.min(LONGEST) {
            let at = address.wrapping_add(text.len() as u64);
            // Pieces end at page boundaries: the page after the string may not be mapped.
            let mut piece = [0; 64];
            let room = (64 - at % 64) as usize;
            let whole = piece.get_mut(..room).unwrap_or_default();
            let read = if self.fetch(at, whole, world).is_ok() {
                room
            } else {
                let mut one = [0];
                if self.memory.is_end_of_scratch(at) && at != address {
                    // `stringof(copyin(..))`: the bytes end, and with them the string.
                    break;
                }
                self.fetch(at, &mut one, world)?;
                [piece[0]] = one;
                1
            };
            let piece = piece.get(..read).unwrap_or_default();
            match piece.iter().position(|byte| *byte == 0) {
                Some(end) => {
                    text.extend_from_slice(piece.get(..end).unwrap_or_default());
                    break;
                }
                None => text.extend_from_slice(piece),
            }
        }
        text.truncate(most);
        Ok(text)
    }

    /// Pops values and writes them as their fields say; the last one is on top. In a key of an aggregation, an address
    /// that is shown as a symbol or module is the start of that, so that each has one entry.
    fn fields(
        &self,
        (fields, of_aggregation): (&[Field], bool),
        stack: &mut dyn CallkStack,
        world: &mut dyn World,
        to: &mut Writer,
    ) -> Result<(), Failure> {
        let (mut few, mut many) = ([0; FEW], Vec::new());
        let values = match few.get_mut(..fields.len()) {
            Some(few) => few,
            None => {
                many.resize(fields.len(), 0);
                many.as_mut_slice()
            }
        };
        values.iter_mut().rev().for_each(|value| *value = stack.pop());
        for (field, value) in fields.iter().zip(values.iter().copied()) {
            match field {
                Field::Int { .. } | Field::Float(_) => to.int(value),
                Field::Symbol(_) | Field::Return(_) => {
                    to.code(&located(*field, value, of_aggregation, world))
                }
                // A null string is shown as an empty one.
                Field::Str if value == 0 => to.bytes(&[]),
                Field::Str => match self.own_text(value) {
                    Some(text) => to.bytes(text),
                    None => to.bytes(&self.text(value, world)?),
                },
                Field::Bytes(size) => {
                    let mut bytes = vec![0; (*size as usize).min(LONGEST)];
                    self.fetch(value, &mut bytes, world)?;
                    to.bytes(&bytes);
                }
                Field::Stack => {
                    let mut count = [0; 8];
                    self.fetch(value, &mut count, world)?;
                    let mut bytes = vec![0; (u64::from_le_bytes(count) as usize).min(LONGEST)];
                    self.fetch(value + 8, &mut bytes, world)?;
                    to.bytes(&bytes);
                }
            }
        }
        Ok(())
    }

    fn add_part(&mut self, stack: &mut dyn CallkStack, world: &mut dyn World) -> Result<(), Failure> {
        self.hot.left = true;
        let number = stack.pop();
        let tables = Arc::clone(&self.setup.tables);
        let Some(record) = tables.records.get(number as usize) else { return Err(CallkError::Unknown) };
        let mut writer = std::mem::take(&mut self.record);
        let before = writer.written().len();
        writer.part(number as u32);
        let done = self.fields((&record.fields, false), stack, world, &mut writer);
        if let Action::Printa { aggregations, .. } = &record.action {
            for number in aggregations {
                writer.snapshot(&self.aggregations.snapshot(*number as usize));
            }
        }
        if done.is_err() {
            writer.truncate(before);
        } else if matches!(record.action, Action::Exit) {
            let status = writer.written().last_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            self.hot.exit = Some(status as i32);
        }
        self.record = writer;
        done
    }

    fn aggregate(&mut self, stack: &mut dyn CallkStack, world: &mut dyn World) -> Result<(), Failure> {
        let (number, weight, value) = (stack.pop() as usize, stack.pop(), stack.pop());
        let Some(table) = self.setup.tables.aggregations.get(number) else { return Err(CallkError::Unknown) };
        let mut key = std::mem::take(&mut self.buffers.0);
        key.truncate(0);
        if !table.keys.is_empty() {
            self.fields((&table.keys, true), stack, world, &mut key)?;
        }
        match self.aggregations.entry(table, number, key.written()) {
            Some(entry) => self.aggregations.add(table, number, entry, (value, weight)),
            None => self.drops.aggregation += 1,
        }
        self.buffers.0 = key;
        Ok(())
    }

    /// Adds a value where the keys are the same at each hit of a probe: the entry is looked up at the first one.
    fn aggregate_fixed(&mut self, stack: &mut dyn CallkStack, world: &mut dyn World) -> Result<(), Failure> {
        let (place, weight, value) = (stack.pop() as usize, stack.pop(), stack.pop());
        let tables = &self.setup.tables;
        let Some(fixed) = tables.fixed.get(place) else { return Err(CallkError::Unknown) };
        let number = fixed.aggregation as usize;
        let Some(table) = tables.aggregations.get(number) else { return Err(CallkError::Unknown) };
        let probe = world.probe();
        let entry = match self.fixed.get(place, probe) {
            Some(entry) => Some(entry),
            None => {
                let mut key = Writer::default();
                self.fixed_key(fixed, &table.keys, world, &mut key)?;
                let entry = self.aggregations.entry(table, number, key.written());
                self.fixed.set(place, probe, entry);
                entry
            }
        };
        match entry {
            Some(entry) => self.aggregations.add(table, number, entry, (value, weight)),
            None => self.drops.aggregation += 1,
        }
        Ok(())
    }

    /// Writes the fields of a key that is the same at each hit of a probe.
    fn fixed_key(
        &self,
        fixed: &FixedKeys,
        fields: &[Field],
        world: &mut dyn World,
        to: &mut Writer,
    ) -> Result<(), Failure> {
        for (key, field) in fixed.keys.iter().zip(fields) {
            match (*key, field) {
                (FixedKey::Probe(builtin), _) => {
                    let mut text = Vec::new();
                    let builtin = Builtin::from_number(builtin).ok_or(CallkError::Unknown)?;
                    world.builtin(builtin, &mut text);
                    to.bytes(text.get(..self.setup.limits.strsize).unwrap_or(&text));
                }
                (FixedKey::Value(address), Field::Str) if address > 0 => {
                    to.bytes(&self.text(address, world)?)
                }
                (FixedKey::Value(_), Field::Str) => to.bytes(&[]),
                (FixedKey::Value(value), Field::Symbol(_) | Field::Return(_)) => {
                    to.code(&located(*field, value, true, world));
                }
                (FixedKey::Value(value), _) => to.int(value),
            }
        }
        Ok(())
    }

    /// The address of the current thread's descriptor. Variables of a thread that had it before are dropped.
    #[inline]
    fn thread(&mut self, world: &mut (impl World + ?Sized)) -> u64 {
        let (task, now) = (world.thread(), world.instructions());
        if !self.threads.is_known(task, now) {
            self.look_at_thread(task, world.birth(task), now);
        }
        task
    }

    fn look_at_thread(&mut self, task: u64, birth: Birth, now: u64) {
        // Variables that threads share are under 0.
        if self.threads.look(task, birth, now) && task != 0 {
            self.dynamics.remove_thread(task);
        }
        if self.threads.are_many() {
            self.threads.keep(&self.dynamics.threads());
        }
    }

    /// Drops the variables of threads that have ended, when there is no room for another one; returns whether there were
    /// any.
    #[cold]
    fn make_room(&mut self, world: &mut dyn World) -> bool {
        if !self.threads.is_worth_a_look(self.dynamics.count()) {
            return false;
        }
        let Some(living) = world.threads() else { return false };
        let before = self.dynamics.count();
        let ended = self.threads.take_ended(&living).into_iter();
        ended.filter(|task| *task != 0).for_each(|task| self.dynamics.remove_thread(task));
        self.dynamics.count() < before
    }

    /// The value of a scalar without keys, if this thread has used it last, as in most clauses with `self->`.
    #[inline]
    pub fn recent(&mut self, variable: u64, world: &mut impl World) -> Option<u64> {
        self.is_recent(variable, world)?;
        self.dynamics.recent(variable).map(|value| u64::from_le_bytes(*value))
    }

    /// Writes such a scalar; false if it is not one. The value is not 0: that removes the element.
    #[inline]
    pub fn set_recent(&mut self, variable: u64, value: u64, world: &mut impl World) -> bool {
        let recent = self.is_recent(variable, world).and_then(|()| self.dynamics.recent(variable));
        recent.map(|recent| *recent = value.to_le_bytes()).is_some()
    }

    #[inline]
    fn is_recent(&mut self, variable: u64, world: &mut impl World) -> Option<()> {
        match self.dynamics.recent_thread(variable)? {
            Some(last) => (last == self.thread(world)).then_some(()),
            None => Some(()),
        }
    }

    /// Reads, writes or finds an element.
    fn dynamic(
        &mut self,
        service: u64,
        stack: &mut dyn CallkStack,
        world: &mut dyn World,
    ) -> Result<(), Failure> {
        let number = stack.pop();
        let tables = Arc::clone(&self.setup.tables);
        let Some(table) = tables.dynamics.get(number as usize) else { return Err(CallkError::Unknown) };
        let thread = table.thread.then(|| self.thread(world));
        let mut key = std::mem::take(&mut self.buffers.0);
        key.truncate(0);
        key.part(number as u32);
        key.int(thread.unwrap_or(0));
        self.fields((&table.keys, false), stack, world, &mut key)?;
        let shape = Shape {
            size: table.size as usize,
            counted: table.counted as usize,
            reference: table.reference,
            string: table.string,
        };
        let plain = table.keys.is_empty() && !table.reference && service != d::REFERENCE;
        let done = self.access(service, (key.written(), shape), stack, world);
        if plain {
            self.dynamics.note_recent(number, thread, key.written());
        }
        self.buffers.0 = key;
        done
    }

    fn access(
        &mut self,
        service: u64,
        (key, shape): (&[u8], Shape),
        stack: &mut dyn CallkStack,
        world: &mut dyn World,
    ) -> Result<(), Failure> {
        let Shape { size, counted, reference, string } = shape;
        match service {
            d::GET => {
                let found = self.dynamics.find(key);
                let value = found.and_then(|slot| self.dynamics.value(slot));
                stack.push(match (found, value) {
                    (Some(slot), Some(_)) if reference => dynamics::address(slot),
                    (_, Some(value)) => dynamics::element_value(value),
                    _ => 0,
                });
                return Ok(());
            }
            d::REFERENCE => {
                let made = self.make(key, (size, counted), world);
                let address = made.map(dynamics::address);
                self.drops.dynamic += u64::from(address.is_none());
                // Without room for the element, a write to this address is dropped.
                stack.push(address.unwrap_or(d::SCRATCH));
                return if address.is_some() { Ok(()) } else { Err(thrown(fault::SCRATCH, 0)) };
            }
            _ => {}
        }
        let value = stack.pop();
        if value == 0 {
            self.dynamics.remove(key);
            return Ok(());
        }
        if !reference {
            self.put(key, (size, counted), &value.to_le_bytes(), world);
            return Ok(());
        }
        let bytes = if string {
            let mut text = self.text(value, world)?;
            text.resize(size, 0);
            text
        } else {
            let mut bytes = vec![0; size];
            self.fetch(value, &mut bytes, world)?;
            bytes
        };
        self.put(key, (size, counted), &bytes, world);
        Ok(())
    }

    /// The element of a key, made if it does not exist; `None` if there is no room for it.
    fn make(&mut self, key: &[u8], (size, counted): (usize, usize), world: &mut dyn World) -> Option<u32> {
        let made = self.dynamics.make(key, size, counted);
        match made {
            None if self.make_room(world) => self.dynamics.make(key, size, counted),
            made => made,
        }
    }

    /// Stores an element, if there is room for it.
    fn put(&mut self, key: &[u8], shape: (usize, usize), bytes: &[u8], world: &mut dyn World) {
        match self.make(key, shape, world) {
            Some(slot) => {
                self.dynamics.write(slot, 0, bytes);
            }
            None => self.drops.dynamic += 1,
        }
    }

    /// Copies bytes, a string into an array of characters, or a string to where one lies.
    fn copy(&mut self, stack: &mut dyn CallkStack, world: &mut dyn World) -> Result<(), Failure> {
        let (kind, size, from, to) = (stack.pop(), stack.pop(), stack.pop(), stack.pop());
        let size = usize::try_from(size)
            .ok()
            .filter(|size| *size <= LONGEST * 16)
            .ok_or_else(|| bad_address(from))?;
        let bytes = if kind == COPY_STRING {
            // Its end follows where the memory of a string has room for it.
            let mut text = if from == 0 { Vec::new() } else { self.text_up_to(from, size, world)? };
            text.resize((text.len() + 1).min(size), 0);
            text
        } else if kind == COPY_TEXT {
            let mut text = self.text_up_to(from, size, world)?;
            text.resize(size, 0);
            text
        } else {
            let mut bytes = vec![0; size];
            self.fetch(from, &mut bytes, world)?;
            bytes
        };
        self.write(to, &bytes)
    }

    /// Copies a string to its variable.
    fn assign(&mut self, stack: &mut dyn CallkStack, world: &mut dyn World) -> Result<(), Failure> {
        let (from, to) = (stack.pop(), stack.pop());
        if from == 0 {
            stack.push(0);
            return Ok(());
        }
        let mut text = self.text(from, world)?;
        text.push(0);
        self.write(to, &text)?;
        stack.push(to);
        Ok(())
    }

    /// Keeps a string until the clause ends.
    pub(super) fn keep(&mut self, text: &[u8]) -> Result<u64, Failure> {
        let text = text.get(..self.setup.limits.strsize).unwrap_or(text);
        self.memory.keep_text(text).ok_or_else(|| thrown(fault::SCRATCH, 0))
    }

    fn builtin(&mut self, stack: &mut dyn CallkStack, world: &mut dyn World) -> Result<(), Failure> {
        let which = Builtin::from_number(stack.pop()).ok_or(CallkError::Unknown)?;
        let mut text = std::mem::take(&mut self.buffers.1);
        text.clear();
        let own = which == Builtin::Vtimestamp && !world.is_altered();
        let reading = if own { Reading::Int(self.own_time(world)) } else { world.builtin(which, &mut text) };
        let value = match reading {
            Reading::Int(value) => Ok(value),
            Reading::Text => {
                self.hot.used = true;
                self.keep(&text)
            }
        };
        self.buffers.1 = text;
        stack.push(value?);
        Ok(())
    }

    /// A stack, as the address of the length of its bytes and the bytes.
    pub(super) fn frames(&mut self, user: bool, most: u64, world: &mut dyn World) -> Result<u64, Failure> {
        let code = world.stack(user, most.min(1 << 16) as usize).encode();
        let mut bytes = (code.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(&code);
        self.memory.keep(&bytes).ok_or_else(|| thrown(fault::SCRATCH, 0))
    }

    /// Functions that control aggregations and speculations.
    pub(super) fn control(&mut self, function: Function, first: u64, second: u64) -> Result<u64, Failure> {
        match function {
            Function::Clear => self.aggregations.clear(&self.setup.tables, first as usize),
            Function::Trunc => {
                self.aggregations.trunc(&self.setup.tables, first as usize, second as i64);
                // Its entries have other numbers now.
                self.fixed.forget();
            }
            Function::Normalize if second == 0 => return Err(thrown(fault::DIVISION, 0)),
            Function::Normalize => self.aggregations.normalize(first as usize, second),
            Function::Denormalize => self.aggregations.normalize(first as usize, 1),
            Function::Speculation => {
                let id = self.speculations.take();
                self.drops.unavailable += u64::from(id == 0);
                return Ok(id);
            }
            Function::Commit | Function::Discard if !self.speculations.exists(first) => {
                return Err(thrown(fault::OPERATION, 0));
            }
            Function::Speculate => {
                // From here on, records go to the speculation. Without one the clause ends, as the compiler has it.
                let active = self.speculations.is_active(first);
                self.hot.speculating = active.then_some(first);
                return Ok(active.into());
            }
            Function::Commit => {
                self.hot.left = true;
                let records = self.speculations.end(first);
                self.committed.extend(records);
            }
            Function::Discard => drop(self.speculations.end(first)),
            Function::Assert if first == 0 => return Err(thrown(ASSERTION, 0)),
            Function::Assert => {}
            _ => return Err(CallkError::Unknown),
        }
        Ok(0)
    }
}
