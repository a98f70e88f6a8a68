//! The functions of D.

use super::{Failure, Reading, Runtime, World, bad_address, net, strings, thrown};
use trapline_rpn::services::d::{Builtin, Function, fault};
use trapline_rpn::{CallkError, CallkStack};

/// The value of an argument that was left out.
const LEFT_OUT: u64 = i64::MIN as u64;

/// Most ancestors of a process that are looked at.
const MOST_ANCESTORS: usize = 1 << 12;

/// An argument that may be left out.
fn optional(value: u64) -> Option<i64> {
    (value != LEFT_OUT).then_some(value as i64)
}

impl Runtime {
    /// Calls a function: its number is on top, its arguments under it.
    pub(super) fn call(&mut self, stack: &mut dyn CallkStack, world: &mut dyn World) -> Result<(), Failure> {
        let function = Function::from_number(stack.pop()).ok_or(CallkError::Unknown)?;
        let mut arguments = [0; 3];
        let count = arity(function);
        for argument in arguments.iter_mut().take(count).rev() {
            *argument = stack.pop();
        }
        let value = self.function(function, arguments, world)?;
        stack.push(value);
        Ok(())
    }

    /// `dti()`: the name of a channel, the priority, and a string or an address with a length.
    pub(super) fn dti(&mut self, stack: &mut dyn CallkStack, world: &mut dyn World) -> Result<(), Failure> {
        let (length, data, prio, name) = (stack.pop(), stack.pop(), stack.pop() as i32, stack.pop());
        let name = self.text(name, world)?;
        let data = match optional(length) {
            None => self.text(data, world)?,
            Some(_) => {
                let mut bytes = trapline_dti::room(length);
                self.fetch(data, &mut bytes, world)?;
                bytes
            }
        };
        let written = world.write_record(&name, prio, &data);
        stack.push(if written { 0 } else { u64::MAX });
        Ok(())
    }

    fn function(
        &mut self,
        function: Function,
        [a, b, c]: [u64; 3],
        world: &mut dyn World,
    ) -> Result<u64, Failure> {
        use Function::{
            Alloca, Basename, Bcopy, Bounds, Cleanpath, Compare, Copyin, Copyinstr, Copyinto, DPath, Dirname,
            Getmajor, Getminor, Htonl, Htonll, Htons, Index, InetNtoa, InetNtoa6, InetNtop, LinkNtop,
            Lltostr, Ntohl, Ntohll, Ntohs, Progenyof, Psargs, Rand, Rindex, Stack, Strchr, Strjoin, Strlen,
            Strrchr, Strstr, Strtok, Strtoll, Substr, Tolower, Toupper, Uregs, UserStack,
        };
        Ok(match function {
            Alloca => self.allocate(a)?,
            Bcopy => {
                self.move_bytes(a, b, c, world)?;
                0
            }
            Copyin => {
                let to = self.allocate(b)?;
                self.move_bytes(a, to, b, world)?;
                to
            }
            Copyinto => {
                self.move_bytes(a, c, b, world)?;
                0
            }
            Copyinstr => {
                let most =
                    optional(b).map_or(self.setup.limits.strsize, |most| usize::try_from(most).unwrap_or(0));
                let text = self.text_up_to(a, most.min(self.setup.limits.strsize), world)?;
                self.keep(&text)?
            }
            Htons | Ntohs => u64::from((a as u16).swap_bytes()),
            Htonl | Ntohl => u64::from((a as u32).swap_bytes()),
            Htonll | Ntohll => a.swap_bytes(),
            Getmajor => u64::from(a as u32 >> 20),
            Getminor => a & 0xf_ffff,
            Rand => self.random(),
            Strlen => self.text(a, world)?.len() as u64,
            Compare => {
                let (one, other) = (self.text_or_null(a, world)?, self.text_or_null(b, world)?);
                world.compared(one.as_deref().unwrap_or_default(), other.as_deref().unwrap_or_default());
                one.cmp(&other) as i64 as u64
            }
            Index | Rindex => {
                let (text, wanted) = (self.text(a, world)?, self.text(b, world)?);
                strings::index(&text, &wanted, optional(c), function == Rindex) as u64
            }
            Strtoll => {
                let base = optional(b).unwrap_or(10);
                if !(2..=36).contains(&base) {
                    return Err(thrown(fault::OPERATION, 0));
                }
                strings::to_number(&self.text(a, world)?, base as u32) as u64
            }
            DPath => {
                let path = world.path(a).ok_or_else(|| bad_address(a))?;
                self.keep(&path)?
            }
            Psargs => {
                let text = self.arguments_of(a, (b, c), world)?;
                self.keep(&text)?
            }
            Progenyof => u64::from(self.descends_from(a as u32, (b, c), world)?),
            Uregs => match world.user_register(a) {
                Some(value) => value.ok_or_else(|| bad_address(0))?,
                None => return Err(thrown(fault::OPERATION, 0)),
            },
            Stack => self.frames(false, a, world)?,
            UserStack => self.frames(true, a, world)?,
            Bounds if a >= b => return Err(thrown(fault::INDEX, a)),
            Bounds => a,
            Basename | Cleanpath | Dirname | Tolower | Toupper | Strchr | Strrchr | Strjoin | Strstr
            | Strtok | Substr | Lltostr => return self.string_function(function, [a, b, c], world),
            InetNtoa | InetNtoa6 | InetNtop | LinkNtop => {
                return self.address_function(function, a, b, world);
            }
            other => return self.control(other, a, b),
        })
    }

    /// Functions that make strings; some return none.
    fn string_function(
        &mut self,
        function: Function,
        [a, b, c]: [u64; 3],
        world: &mut dyn World,
    ) -> Result<u64, Failure> {
        if function == Function::Strtok {
            return self.strtok(a, b, world);
        }
        if function == Function::Lltostr {
            let base = optional(b).unwrap_or(10);
            if !(2..=36).contains(&base) {
                return Err(thrown(fault::OPERATION, 0));
            }
            let shown = strings::from_number(a as i64, base as u32);
            return self.keep(shown.as_bytes());
        }
        let text = match function {
            // A part of a string that is longer than `strsize`: it is read as far as the part reaches.
            Function::Substr if b as i64 >= 0 => {
                let most = (b as usize).saturating_add(self.setup.limits.strsize);
                self.text_up_to(a, most, world)?
            }
            _ => self.text(a, world)?,
        };
        let made = match function {
            Function::Basename => Some(strings::basename(&text)),
            Function::Cleanpath => Some(strings::cleanpath(&text)),
            Function::Dirname => Some(strings::dirname(&text)),
            Function::Tolower => Some(text.to_ascii_lowercase()),
            Function::Toupper => Some(text.to_ascii_uppercase()),
            Function::Strchr => strings::find(&text, b as u8, false),
            Function::Strrchr => strings::find(&text, b as u8, true),
            Function::Strjoin => {
                let mut joined = text;
                joined.extend(self.text(b, world)?);
                Some(joined)
            }
            Function::Strstr => {
                let wanted = self.text(b, world)?;
                strings::position(&text, &wanted).map(|at| text.get(at..).unwrap_or_default().to_vec())
            }
            _ => Some(strings::substr(&text, b as i64, optional(c))),
        };
        match made {
            Some(made) => self.keep(&made),
            None => Ok(0),
        }
    }

    /// The next part of a string, or of the one that the last call was given.
    fn strtok(&mut self, text: u64, separators: u64, world: &mut dyn World) -> Result<u64, Failure> {
        let separators = self.text(separators, world)?;
        if optional(text).is_some() {
            self.strtok = (self.text(text, world)?, 0);
        }
        let (whole, from) = std::mem::take(&mut self.strtok);
        let rest = whole.get(from..).unwrap_or_default();
        let Some(start) = rest.iter().position(|byte| !separators.contains(byte)) else {
            return Ok(0);
        };
        let part = rest.get(start..).unwrap_or_default();
        let length = part.iter().position(|byte| separators.contains(byte)).unwrap_or(part.len());
        let kept = self.keep(part.get(..length).unwrap_or_default())?;
        let next = from + start + length;
        self.strtok = (whole, next);
        Ok(kept)
    }

    fn address_function(
        &mut self,
        function: Function,
        a: u64,
        b: u64,
        world: &mut dyn World,
    ) -> Result<u64, Failure> {
        let (family, address) = match function {
            Function::InetNtoa => (Some(net::Family::Inet), a),
            Function::InetNtoa6 => (Some(net::Family::Inet6), a),
            Function::LinkNtop => (net::link(a), b),
            _ => (net::family(a), b),
        };
        let Some(family) = family else { return Err(thrown(fault::OPERATION, 0)) };
        let mut bytes = vec![0; family.size()];
        self.fetch(address, &mut bytes, world)?;
        self.keep(family.show(&bytes).as_bytes())
    }

    /// The arguments of a task's program, which lie between two addresses, with spaces between them.
    fn arguments_of(
        &self,
        task: u64,
        (start, end): (u64, u64),
        world: &mut dyn World,
    ) -> Result<Vec<u8>, Failure> {
        if !world.is_in_memory(task) {
            return Err(bad_address(start));
        }
        let size = usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX);
        let mut text = vec![0; size.min(self.setup.limits.strsize)];
        self.fetch(start, &mut text, world)?;
        while text.last() == Some(&0) {
            text.pop();
        }
        text.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = b' ');
        Ok(text)
    }

    /// Whether the current process is `pid` or descends from it. `real_parent` and `tgid` are places in a task.
    fn descends_from(
        &self,
        pid: u32,
        (real_parent, tgid): (u64, u64),
        world: &mut dyn World,
    ) -> Result<bool, Failure> {
        let Reading::Int(mut task) = world.builtin(Builtin::Curthread, &mut Vec::new()) else {
            return Ok(false);
        };
        let pointer = world.pointer_bytes();
        for _ in 0..MOST_ANCESTORS {
            let mut bytes = [0; 4];
            self.fetch(task.wrapping_add(tgid), &mut bytes, world)?;
            if u32::from_le_bytes(bytes) == pid {
                return Ok(true);
            }
            let mut bytes = [0; 8];
            let parent = bytes.get_mut(..pointer).unwrap_or_default();
            self.fetch(task.wrapping_add(real_parent), parent, world)?;
            let parent = u64::from_le_bytes(bytes);
            // The first task is its own parent.
            if parent == task {
                return Ok(false);
            }
            task = parent;
        }
        Err(thrown(fault::OPERATION, 0))
    }

    fn text_or_null(&self, address: u64, world: &mut dyn World) -> Result<Option<Vec<u8>>, Failure> {
        if address == 0 { Ok(None) } else { self.text(address, world).map(Some) }
    }

    fn allocate(&mut self, size: u64) -> Result<u64, Failure> {
        self.memory.allocate(size, self.setup.limits.scratchsize).ok_or_else(|| thrown(fault::SCRATCH, 0))
    }

    fn move_bytes(&mut self, from: u64, to: u64, size: u64, world: &mut dyn World) -> Result<(), Failure> {
        let most = self.setup.limits.scratchsize;
        let size = usize::try_from(size).ok().filter(|size| *size <= most.next_multiple_of(8));
        let Some(size) = size else { return Err(bad_address(to)) };
        let mut bytes = vec![0; size];
        self.fetch(from, &mut bytes, world)?;
        self.write(to, &bytes)
    }

    /// The next number of a fixed sequence.
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.random;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        i64::from((value ^ (value >> 31)) as i32) as u64
    }
}

/// How many arguments a function is given, those that were left out included.
fn arity(function: Function) -> usize {
    use Function::{
        Bcopy, Bounds, Compare, Copyin, Copyinstr, Copyinto, Index, InetNtop, LinkNtop, Lltostr, Normalize,
        Null, Progenyof, Psargs, Rand, Rindex, Speculation, Strchr, Strjoin, Strrchr, Strstr, Strtok,
        Strtoll, Substr, Trunc,
    };
    match function {
        Null | Rand | Speculation => 0,
        Bcopy | Copyinto | Index | Progenyof | Psargs | Rindex | Substr => 3,
        Bounds | Compare | Copyin | Copyinstr | InetNtop | LinkNtop | Lltostr | Normalize | Strchr
        | Strjoin | Strrchr | Strstr | Strtok | Strtoll | Trunc => 2,
        _ => 1,
    }
}
