//! The host services that a handler calls with `callk`, and the requests `exit 1`, `2` and `3`
//! (docs/probe-language.md, "Host services and exits").
//!
//! Services read the guest without changing it. Their requests to the run (an end, a frozen channel) are stored in
//! [`super::asked::Asked`] and handled after the handler.

use super::host::Guest;
use super::view::View;
use crate::d::{Reading, World};
use trapline_os::{CodePlace, CodePointer};
use trapline_rpn::services::d::Builtin;
use trapline_rpn::{CallkError, CallkStack, services};

/// Most elements of a channel's name.
const MOST_NAME: u64 = 16;
/// Most return addresses that `kernel_stack` returns.
const MAX_FRAMES: u64 = 256;

impl<V: View> Guest<'_, V> {
    /// Calls a service.
    pub(crate) fn service(&mut self, number: u64, stack: &mut dyn CallkStack) -> Result<(), CallkError> {
        match number {
            services::STOP => (self.asked.any, self.asked.stop) = (true, true),
            services::FREEZE => self.asked.frozen_after = Some(self.stats.hits),
            services::RESUME => self.asked.frozen_after = None,
            services::ASSERT => {
                if stack.pop() == 0 {
                    self.asked.refute(self.firing.0, 0);
                    return Err(CallkError::Throw { user: services::ASSERTION, parm1: 0, parm2: 0 });
                }
            }
            services::KERNEL_STACK => {
                let most = stack.pop().min(MAX_FRAMES);
                let profile = self.profile.as_deref();
                let frames =
                    self.unwinder.kernel_stack(self.core, profile, self.probe.at_call, most as usize);
                frames.iter().rev().for_each(|frame| stack.push(frame.ip));
                stack.push(frames.len() as u64);
            }
            services::SYMBOL => {
                let address = stack.pop();
                let place = self.unwinder.place(self.core, self.profile.as_deref(), CodePointer::At(address));
                let within = |place: &CodePlace| address.wrapping_sub(place.base);
                let found =
                    place.and_then(|place| self.function_at(place.user, &place.module, within(&place)));
                let (name, offset) = found.unwrap_or((String::new(), address));
                let word = if self.core.env().long_mode() { 8 } else { 4 };
                stack.push(offset);
                let elements = name.as_bytes().chunks(word);
                let count = elements.len();
                elements.rev().for_each(|bytes| stack.push(little_endian(bytes)));
                stack.push(count as u64);
            }
            services::DTI_LOG => return self.dti_log(stack),
            services::OBSERVING.. => {
                let services = self.asked.services.clone();
                return services.call(number, stack, self);
            }
            number => {
                // Taken out, so that it can borrow the guest.
                let Some(d) = self.d.take() else { return Err(CallkError::Unknown) };
                let done = d.service(number, stack, self);
                self.d = Some(d);
                return done;
            }
        }
        Ok(())
    }
}

impl<V: View> Guest<'_, V> {
    /// The value of a scalar of D whose element the last use has found, or of a built-in variable that is a number.
    #[inline]
    pub(crate) fn quick_read(&mut self, service: u64, operand: u64) -> Option<u64> {
        // Taken out, so that the guest can be asked.
        let d = self.d.take()?;
        let found = match service {
            services::d::BUILTIN if operand == Builtin::Vtimestamp.number() && !V::ALTERS => {
                Some(d.own_time(self))
            }
            services::d::BUILTIN => self.quick_builtin(operand),
            _ => d.recent(operand, self),
        };
        self.d = Some(d);
        found
    }

    fn quick_builtin(&mut self, operand: u64) -> Option<u64> {
        let which = Builtin::from_number(operand).filter(|which| !which.is_text())?;
        match self.builtin(which, &mut Vec::new()) {
            Reading::Int(value) => Some(value),
            Reading::Text => None,
        }
    }

    /// Writes such a scalar of D. Zero is left to the service, which removes the element.
    #[inline]
    pub(crate) fn quick_write(&mut self, operand: u64, value: u64) -> bool {
        if value == 0 {
            return false;
        }
        let Some(d) = self.d.take() else { return false };
        let done = d.set_recent(operand, value, self);
        self.d = Some(d);
        done
    }

    /// `dti_log`: the name of the channel is on top, in elements as `symbol` pushes them.
    fn dti_log(&mut self, stack: &mut dyn CallkStack) -> Result<(), CallkError> {
        let word = if self.core.env().long_mode() { 8 } else { 4 };
        let count = stack.pop();
        let mut name: Vec<u8> = Vec::new();
        for _ in 0..count.min(MOST_NAME) {
            name.extend(stack.pop().to_le_bytes().iter().take(word));
        }
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let (prio, length, data) = (stack.pop() as i32, stack.pop(), stack.pop());
        let mut bytes = trapline_dti::room(length);
        self.view.read(self.core, data, &mut bytes).map_err(|address| CallkError::Throw {
            user: services::d::fault::ADDRESS,
            parm1: address,
            parm2: 0,
        })?;
        let written = self.write_to_channel(name, prio, &bytes);
        stack.push(if written { 0 } else { u64::MAX });
        Ok(())
    }
}

/// At most eight bytes as a number.
fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}
