// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Inside a service: events and their answers, and what it asks for.

use core::sync::atomic::Ordering;

use turnstile_service::abi::{self, Answer, Call, Event, Kind};
use turnstile_service::gate::Pending;

use super::crash::Crash;
use super::demand::{awaited, is_access};
use super::members::{owners, senders};
use super::space::answered;
use super::{CHANGED, Device, EMPTY, Left, Meanwhile, RUNS, Service, Space, Typed};

/// What an absent device answers.
const ABSENT: Answer = Answer { value: u64::MAX, lines: 0, count: 0, words: [0; 2] };

/// How often an event is handed to a service that crashes on it.
const TRIES: u32 = 2;

/// Returns the event as it is at another time, if it says the time.
const fn at(mut event: Event, now: u64) -> Event {
    match event.kind() {
        Some(Kind::Doorbell) => event.0[2] = now,
        Some(Kind::Alarm | Kind::Interrupt) => event.0[1] = now,
        _ => {}
    }
    event
}

impl<S: Space> Service<S> {
    /// Handles what waits, and leaves. What has come meanwhile is left for later: who rings without end, or a service that asks for more
    /// and more, keeps nobody from this CPU, and the gate closed for nobody.
    #[cold]
    pub(super) unsafe fn settle(&self, pending: Pending, meanwhile: &mut impl Meanwhile) {
        if pending.has_found_asleep() {
            return self.pass_on(pending);
        }
        // SAFETY: the caller's promise.
        unsafe { self.handle_pending(pending, meanwhile) };
        self.leave(meanwhile);
    }

    /// Leaves. What waits is wanted.
    pub(super) fn leave(&self, meanwhile: &mut impl Meanwhile) {
        while let Some(pending) = self.gate.leave() {
            self.wanted.add(pending);
            match self.is_shared {
                // Whose it is sees to it: a member that rings without end is to keep no other from its guest.
                true => self.outside.call(owners(pending)),
                false => meanwhile.again(),
            }
        }
    }

    pub(super) unsafe fn handle_pending(&self, pending: Pending, meanwhile: &mut impl Meanwhile) {
        if pending.has(Pending::KILL) {
            self.crash(Crash::Killed, Left::Interrupt);
        }
        // SAFETY: the caller's promise, for all of these.
        let mut handle = |event: Event| unsafe { self.handle_apart(event, meanwhile) };
        if pending.queues() != 0 {
            handle(Event::new(Kind::Doorbell, [pending.queues(), S::now(), 0, 0, 0]));
        }
        if pending.has(Pending::ALARM) {
            let answer = handle(Event::new(Kind::Alarm, [S::now(), 0, 0, 0, 0]));
            if answer.value == abi::UNDRIVEN {
                self.cut_off();
            }
            if self.device.as_ref().is_some_and(Device::has_rested) {
                self.unmask_handled();
            }
        }
        if pending.has(Pending::INTERRUPT) {
            let answer = handle(Event::new(Kind::Interrupt, [S::now(), 0, 0, 0, 0]));
            let rests = answer.value == abi::LATER;
            self.device.iter().for_each(|device| device.rest(rests));
            match answer.value {
                abi::UNDRIVEN => self.cut_off(),
                _ if rests => {}
                _ => self.unmask_handled(),
            }
        }
        if pending.has(Pending::INPUT) {
            // Before anything new: of what it was offered in vain, nobody else knows any more.
            let typed = self.unheard.lock().take().unwrap_or_else(|| self.outside.typed());
            let Typed { port, count, characters, position, size, is_news } = typed;
            if count == 0 && !is_news {
                return;
            }
            let event = Event::new(Kind::Input, [port, count, characters, position, size]);
            let taken = handle(event).value.min(count);
            if self.starved.has(Pending::INPUT) {
                *self.unheard.lock() = Some(typed);
                return;
            }
            if taken == 0 && count != 0 {
                // It offers no room while it takes nothing of what there is. Before others are asked whether there is more: what they post then
                // stays.
                self.gate.withdraw(Pending::INPUT);
            }
            if self.outside.took(&typed, taken) {
                // Perhaps it has room.
                let _ = self.gate.post(Pending::INPUT);
            }
        }
    }

    /// The program does not drive its device any more, which may not have ended what it was told: it reaches no memory from now on.
    #[cold]
    fn cut_off(&self) {
        if self.device.is_some() {
            self.outside.allow(false);
        }
    }

    /// What its device has said is handled: it may interrupt again.
    fn unmask_handled(&self) {
        // What begins anew unmasks it itself, when it can handle it.
        if matches!(self.begins.load(Ordering::Relaxed), RUNS | CHANGED) {
            self.outside.unmask();
        }
    }

    /// Hands an event to the service until it has an answer, which takes effect; for who is inside.
    #[inline(always)] // The way of each access.
    pub(super) unsafe fn handle<T>(
        &self,
        event: &Event,
        meanwhile: &mut impl Meanwhile,
        part: impl Fn(Answer) -> T,
    ) -> T {
        let mut entered = None;
        if self.begins.load(Ordering::Relaxed) == RUNS {
            // SAFETY: the caller's promise; its memory has been begun.
            match unsafe { self.space.ask(event) } {
                Ok(answer) => {
                    self.publish(event, &answer, meanwhile);
                    return part(answer);
                }
                Err(left) => entered = Some(left),
            }
        }
        // By value, and taken apart: what is short stays in registers.
        // SAFETY: the caller's promise.
        let Answer { value, lines, count, words } = unsafe { self.handle_long(*event, entered, meanwhile) };
        part(Answer { value, lines, count, words })
    }

    /// The same, where fewer instructions of the image are worth more than of the way.
    #[inline(never)] // Four callers.
    unsafe fn handle_apart(&self, event: Event, meanwhile: &mut impl Meanwhile) -> Answer {
        // SAFETY: the caller's promise.
        unsafe { self.handle(&event, meanwhile, |answer| answer) }
    }

    /// The same, if it begins anew, or has not answered at once and was left as `entered` says.
    #[cold]
    unsafe fn handle_long(
        &self,
        event: Event,
        entered: Option<Left>,
        meanwhile: &mut impl Meanwhile,
    ) -> Answer {
        if self.begins.load(Ordering::Relaxed) != RUNS && !self.prepare(&event, meanwhile) {
            return ABSENT;
        }
        // SAFETY: the caller's promise.
        match unsafe { self.attempt(&event, entered, meanwhile) } {
            Ok(answer) => {
                self.publish(&event, &answer, meanwhile);
                self.take_up();
                answer
            }
            // SAFETY: as before.
            Err(crash) => unsafe { self.attempt_again(&event, crash, meanwhile) },
        }
    }

    /// It begins anew with an event. False if whose event that is gets what an absent device answers.
    #[cold]
    #[inline(never)] // The registers that it needs are not saved for events that take long.
    fn prepare(&self, event: &Event, meanwhile: &mut impl Meanwhile) -> bool {
        if !self.await_return(event, meanwhile) {
            return false;
        }
        // Once for each event: who comes back while that is tried again may be the reason again, without end.
        let now = S::now();
        self.admit(now, self.supplied_for(event, now));
        if event.kind() == Some(Kind::Alarm) {
            self.remind();
        }
        true
    }

    /// Hands an event to the service again after a crash, until it has an answer, which takes effect, or has crashed too often.
    #[cold]
    #[inline(never)] // As above.
    unsafe fn attempt_again(
        &self,
        event: &Event,
        mut crash: Crash,
        meanwhile: &mut impl Meanwhile,
    ) -> Answer {
        let mut tries = TRIES;
        loop {
            match crash {
                // Whoever is killed is not to blame.
                Crash::Killed => {}
                Crash::Starved if !self.is_shared && !is_access(event) => {
                    self.postpone(event);
                    return Answer::default();
                }
                // The program begins anew without the member that was the reason, which is another one each time.
                Crash::Starved if !self.is_reason(awaited(event)) => {}
                Crash::Starved => tries -= 1,
                // It would come back for that, and crash the program as often as it likes.
                _ if self.returns_at(event).is_some() => tries = 0,
                _ => tries -= 1,
            }
            if tries == 0 {
                return self.abandon(event, meanwhile);
            }
            // The first attempt, and to begin anew, have taken their time, which is not this one's.
            let event = &at(*event, S::now());
            // SAFETY: the caller's promise.
            match unsafe { self.attempt(event, None, meanwhile) } {
                Ok(answer) => {
                    self.publish(event, &answer, meanwhile);
                    self.take_up();
                    return answer;
                }
                Err(again) => crash = again,
            }
        }
    }

    /// It has crashed with an event too often. Returns what the answer is then.
    fn abandon(&self, event: &Event, meanwhile: &mut impl Meanwhile) -> Answer {
        self.take_up();
        // Before it is blamed: a device that is given up for this event has others wait for what they asked of it.
        let is_of_device = self.is_of_device(event);
        self.blame(event);
        let is_awaited = self.is_shared || self.device.is_some();
        if is_awaited && (event.kind() != Some(Kind::Alarm) || is_of_device) {
            // The others wait for it, or for its device, and may not say so again.
            self.outside.alarm(0);
        }
        if self.lines.load(Ordering::Relaxed) != 0 {
            self.set_lines(0, [0; 2], 0, meanwhile);
        }
        ABSENT
    }

    /// What is kept may be the reason why it crashes on an event: it is forgotten. Of a shared service that is what is kept of those from
    /// whom the event came. Nothing is if it came from the device, which may be the reason, too.
    #[cold]
    pub(super) fn blame(&self, event: &Event) {
        if self.is_of_device(event) {
            return self.device.iter().for_each(Device::failed);
        }
        let senders = senders(event);
        if !self.is_shared && senders != 0 {
            return self.begins.store(EMPTY, Ordering::Relaxed);
        }
        let mut members = self.members.lock();
        let blamed = members.iter_mut().enumerate().filter(|(number, _)| senders >> number & 1 != 0);
        blamed.for_each(|(_, member)| member.forget_kept());
    }

    /// Says whether an event came from the machine's device, for as long as the program does not go without it: an alarm did, if no other VM can
    /// have brought it about.
    fn is_of_device(&self, event: &Event) -> bool {
        let Some(device) = self.device.as_ref() else { return false };
        match event.kind() {
            Some(Kind::Interrupt) => true,
            Some(Kind::Alarm) => !self.is_shared && !device.is_given_up(),
            _ => false,
        }
    }

    /// Hands an event to the service, if it has not been `entered` with it already, once.
    #[inline(always)] // Once above, where events take long, and once where it has crashed.
    unsafe fn attempt(
        &self,
        event: &Event,
        entered: Option<Left>,
        meanwhile: &mut impl Meanwhile,
    ) -> Result<Answer, Crash> {
        let left = match entered {
            Some(left) => left,
            None => {
                if self.begins.load(Ordering::Relaxed) != RUNS {
                    // Whose guest waits for the answer.
                    self.admit(0, awaited(event));
                    // SAFETY: the caller's promise.
                    unsafe { self.begin(meanwhile)? };
                }
                // SAFETY: the caller's promise; its memory has been begun.
                unsafe { self.space.enter(event) }
            }
        };
        // SAFETY: the caller's promise; it has been entered.
        unsafe { self.finish(left, meanwhile) }.map_err(|(crash, left)| {
            self.crash_on(event, crash, left);
            crash
        })
    }

    /// Lets a service that was entered, and `left`, go on until it has handled its event.
    pub(super) unsafe fn finish(
        &self,
        mut left: Left,
        meanwhile: &mut impl Meanwhile,
    ) -> Result<Answer, (Crash, Left)> {
        loop {
            let result = match left {
                Left::Call => {
                    // SAFETY: the caller's promise, for all of these.
                    let registers = unsafe { self.space.call() };
                    if let Some(answer) = answered(&registers) {
                        return Ok(answer);
                    }
                    let [number, value, lines, count, ..] = registers;
                    match Call::from_number(number) {
                        Some(Call::Panic) => return Err((Crash::Panic, left)),
                        call => Some(self.serve(call, [value, lines, count], meanwhile)),
                    }
                }
                Left::Interrupt => {
                    meanwhile.interrupt();
                    if self.gate.is_killed() {
                        return Err((Crash::Killed, left));
                    }
                    if self.space.is_late() {
                        return Err((Crash::Late, left));
                    }
                    None
                }
                Left::Fault => {
                    // SAFETY: as above.
                    unsafe { self.supply(meanwhile) }.map_err(|crash| (crash, left))?;
                    if self.gate.is_killed() {
                        return Err((Crash::Killed, Left::Interrupt));
                    }
                    None
                }
            };
            // SAFETY: as above; if it has faulted, that was supplied, or comes again.
            left = unsafe { self.space.resume(result) };
        }
    }

    /// Carries out a call from which the service goes on; returns its result.
    #[cold]
    fn serve(
        &self,
        call: Option<Call>,
        [first, second, third]: [u64; 3],
        meanwhile: &mut impl Meanwhile,
    ) -> u64 {
        match call {
            Some(Call::Print) if first <= abi::CHARACTERS => {
                return self.print(first, [second, third]).unwrap_or(abi::REFUSED);
            }
            Some(Call::Log) if first <= abi::CHARACTERS => self.outside.log(first, [second, third]),
            // Usually all are there.
            Some(Call::Alarm) if self.begins.load(Ordering::Relaxed) == RUNS => {
                return self.outside.alarm(first);
            }
            Some(Call::Alarm) => return self.outside.alarm(self.no_later(first)),
            Some(Call::Time) => return S::now(),
            Some(Call::Send) => return self.send(first, [second, third]).unwrap_or(abi::REFUSED),
            Some(Call::PortName) if !self.is_shared => {
                return self.outside.port_name(first, second).unwrap_or(abi::REFUSED);
            }
            Some(Call::Release) if !self.is_shared => {
                return self.give_up(first, second).unwrap_or(abi::REFUSED);
            }
            Some(Call::Keep) if !self.is_shared => self.outside.keep(),
            Some(Call::Random) => return self.outside.random().unwrap_or(abi::REFUSED),
            Some(Call::Message) if self.message(third, first, second, meanwhile) => {}
            Some(Call::Decode) if self.decode(first, second, third) => {}
            _ => return abi::REFUSED,
        }
        0
    }

    /// Passes bytes on to the other side of a port. `None` if there is no such port: a shared service has none.
    fn send(&self, argument: u64, words: [u64; 2]) -> Option<u64> {
        let (port, count) = abi::split_port_count(argument);
        let is_port = !self.is_shared && count <= abi::CHARACTERS;
        is_port.then(|| self.outside.send(port, count, words)).flatten()
    }

    /// Sends a message to a member, if it is there. Most are for the vCPU on this CPU, whose request the service has just handled.
    fn message(&self, member: u64, address: u64, data: u64, meanwhile: &mut impl Meanwhile) -> bool {
        let number = member as usize;
        self.is_present(member)
            && (self.function_of(number).is_some_and(|vm| meanwhile.message(vm, address, data))
                || self.outside.message(number, address, data))
    }

    /// Returns the VM whose PCI function a member is: devices of other kinds send no messages.
    fn function_of(&self, member: usize) -> Option<u8> {
        self.vms.get(member).copied().flatten()
    }

    /// Has a BAR of a member's function decoded, if it is there.
    fn decode(&self, number: u64, address: u64, size: u64) -> bool {
        let (member, bar) = abi::split_device(number);
        self.is_present(member) && self.outside.decode(member as usize, bar, address, size)
    }

    /// Says whether a member is there, for who is inside, or whose turn it is: so it stays there meanwhile.
    pub(super) fn is_present(&self, member: u64) -> bool {
        member < abi::MEMBERS && self.present.load(Ordering::Relaxed) >> member & 1 != 0
    }

    /// Lets what the service has answered take effect.
    #[inline(always)] // Two comparisons, usually.
    pub(super) fn publish(&self, event: &Event, answer: &Answer, meanwhile: &mut impl Meanwhile) {
        if answer.count != 0 && event.kind() != Some(Kind::TerminalRead) {
            self.print(answer.count, answer.words);
        }
        if answer.lines != self.lines.load(Ordering::Relaxed) {
            // SAFETY: inside, and it has just answered.
            self.set_lines(answer.lines, unsafe { self.space.words(answer) }, answer.count, meanwhile);
        }
    }

    /// Prints on the VM's console; returns how many characters it has printed so far. `None` if it is shared: its members have no
    /// console that would be its own.
    #[cold]
    #[inline(never)] // No pointer is called on the way of an access.
    fn print(&self, count: u64, words: [u64; 2]) -> Option<u64> {
        (!self.is_shared).then(|| self.outside.print(count.min(abi::CHARACTERS), words))
    }

    /// Sets levels of lines, and does what is among them. The words are the answer's, which has so many characters.
    #[cold]
    fn set_lines(&self, lines: u64, [address, word]: [u64; 2], count: u64, meanwhile: &mut impl Meanwhile) {
        if lines & abi::MESSAGE != 0 && count == 0 {
            let (member, data) = abi::split_message(word);
            // What a driver has written where nothing is reaches nobody, as on a bus.
            let _ = self.message(member, address, data, meanwhile);
        }
        if lines & abi::ROOM != 0 {
            self.outside.has_room();
            // Whoever is inside finds it on the way out, and that is the caller.
            let _ = self.gate.post(Pending::INPUT);
        }
        if lines & abi::AGAIN != 0 {
            self.again();
        }
        let levels = lines & !(abi::ROOM | abi::AGAIN | abi::MESSAGE);
        let changed = self.lines.swap(levels, Ordering::Relaxed) ^ levels;
        if changed != 0 {
            self.outside.lines(changed, levels);
        }
    }

    /// The service has more to do: others have a turn first.
    fn again(&self) {
        match self.has_own_cpu() {
            // They have it at once.
            true => self.tell(Pending::ALARM),
            false => _ = self.outside.alarm(0),
        }
    }
}
