// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A service begins: its memory as its program has it, then its first events: the machine's device that it drives, and its members.

use core::sync::atomic::Ordering;

use turnstile_service::abi::{self, Answer, Event, Kind};

use super::crash::Crash;
use super::members::{Member, News, Reached, senders};
use super::{ANEW, CHANGED, Device, EMPTY, Meanwhile, RUNS, Service, Space, Storage, Window};

impl<S: Space> Service<S> {
    /// Puts the memory back, unless it is only to know of members, and hands the service its first events.
    #[cold]
    pub(super) unsafe fn begin(&self, meanwhile: &mut impl Meanwhile) -> Result<(), Crash> {
        let begins = self.begins.load(Ordering::Relaxed);
        if begins != CHANGED {
            // SAFETY: the caller's promise.
            unsafe { self.space.begin(begins == ANEW) };
            let mut members = self.members.lock();
            members.iter_mut().for_each(Member::forget_told);
            if begins == EMPTY {
                members.iter_mut().for_each(Member::forget_kept);
            }
            drop(members);
            // SAFETY: as before.
            unsafe { self.show_device(meanwhile)? };
        }
        // Who has left first: where its memory was, that of who has come may be, and the program may have noted places there.
        // SAFETY: the caller's promise; the members' memory has been begun.
        unsafe { self.tell_of_members(|news| news == News::Left, meanwhile)? };
        // SAFETY: as before.
        unsafe { self.tell_of_members(|_| true, meanwhile)? };
        // As long as it does without somebody, each event looks whether that one comes back.
        self.begins.store(if self.lacks(u64::MAX) { CHANGED } else { RUNS }, Ordering::Relaxed);
        Ok(())
    }

    /// Tells the program of the machine's device that it drives, which may interrupt then.
    unsafe fn show_device(&self, meanwhile: &mut impl Meanwhile) -> Result<(), Crash> {
        let Some(device) = self.device.as_ref().filter(|device| !device.is_given_up()) else { return Ok(()) };
        // SAFETY: the caller's promise; its memory has been begun.
        let shown = unsafe { self.show_parts(device, meanwhile) };
        if shown.is_err_and(|crash| crash != Crash::Killed) {
            device.failed();
        }
        match shown? {
            // Also what had come to the life before, which did not handle it.
            true => self.outside.unmask(),
            false => self.outside.allow(false),
        }
        Ok(())
    }

    /// Hands the service the events of its device. Says whether it drives that.
    unsafe fn show_parts(&self, device: &Device, meanwhile: &mut impl Meanwhile) -> Result<bool, Crash> {
        for event in device.events() {
            let [_, part, ..] = event.0;
            if part == abi::DEVICE_READY {
                self.outside.allow(true);
            }
            // SAFETY: the caller's promise; its memory has been begun.
            let value = unsafe { self.show_part(&event, meanwhile)? };
            if value == abi::UNDRIVEN || value == abi::LATER && part == abi::DEVICE_MEMORY {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Hands the service an event of its device, again and again while it has not handled that: a device takes its time to be reset and to begin.
    /// Who waits for it is not to find one that is half there. Returns the answer's value.
    unsafe fn show_part(&self, event: &Event, meanwhile: &mut impl Meanwhile) -> Result<u64, Crash> {
        let mut value = abi::LATER;
        for _ in 0..abi::LATER_EVENTS {
            // SAFETY: the caller's promise; its memory has been begun.
            let answer = unsafe { self.first(event, meanwhile)? };
            self.publish(event, &answer, meanwhile);
            value = answer.value;
            if value != abi::LATER {
                break;
            }
        }
        Ok(value)
    }

    /// Keeps its device from memory until it begins anew.
    pub(super) fn silence(&self) {
        if let Some(device) = &self.device {
            self.outside.allow(false);
            // Whoever begins anew unmasks it.
            device.rest(false);
        }
    }

    /// Tells the program its news of each member for as long as these are `wanted`.
    ///
    /// # Safety
    /// As for [`Self::begin`], and the members' memory has been begun.
    unsafe fn tell_of_members(
        &self,
        wanted: impl Fn(News) -> bool,
        meanwhile: &mut impl Meanwhile,
    ) -> Result<(), Crash> {
        // Each member by itself: no lock is held while the service runs.
        let count = self.members.lock().len();
        for number in 0..count {
            while let Some((news, member)) = self.news(number).filter(|(news, _)| wanted(*news)) {
                let number = number as u64;
                // SAFETY: the caller's promise.
                unsafe { self.bring(news, number, &member, meanwhile)? };
                self.members.lock().get_mut(number as usize).into_iter().for_each(|member| member.tell(news));
            }
        }
        Ok(())
    }

    /// Returns what the program has to know next of a member.
    fn news(&self, number: usize) -> Option<(News, Member)> {
        let members = self.members.lock();
        let member = members.get(number)?;
        Some((member.news()?, member.clone()))
    }

    /// Brings the service news of a member.
    unsafe fn bring(
        &self,
        news: News,
        number: u64,
        member: &Member,
        meanwhile: &mut impl Meanwhile,
    ) -> Result<(), Crash> {
        let event = match news {
            News::Left => Event::new(Kind::Detach, [number, 0, 0, 0, 0]),
            News::Joined(kept) => {
                // SAFETY: the caller's promise.
                unsafe { self.show(number, &member.reached, meanwhile)? };
                let [first, second] = member.port.settings;
                Event::new(Kind::Attach, [kept.into(), member.port.bars, number, first, second])
            }
        };
        // SAFETY: as above.
        let answer = unsafe { self.first(&event, meanwhile)? };
        self.publish(&event, &answer, meanwhile);
        Ok(())
    }

    /// Tells the service where a member's memory is.
    unsafe fn show(
        &self,
        member: u64,
        reached: &Reached,
        meanwhile: &mut impl Meanwhile,
    ) -> Result<(), Crash> {
        for (piece, window) in reached.windows.iter().enumerate() {
            let Window { guest, size, address, bus, .. } = *window;
            let number = abi::member_device(member, piece as u64);
            // SAFETY: the caller's promise; its memory has been begun.
            unsafe { self.first(&Event::new(Kind::Memory, [number, guest, size, address, bus]), meanwhile)? };
        }
        for event in reached.storage.iter().flat_map(Storage::events) {
            // SAFETY: as above.
            unsafe { self.first(&event, meanwhile)? };
        }
        Ok(())
    }

    /// Hands the service one of its first events.
    unsafe fn first(&self, event: &Event, meanwhile: &mut impl Meanwhile) -> Result<Answer, Crash> {
        // SAFETY: the caller's promise; its memory has been begun.
        let finished = unsafe {
            let left = self.space.enter(event);
            self.finish(left, meanwhile)
        };
        finished.map_err(|(crash, left)| {
            self.crash(crash, left);
            let is_blamed = match crash {
                Crash::Killed => false,
                Crash::Starved => self.is_reason(senders(event)),
                _ => true,
            };
            if is_blamed {
                self.blame(event);
            }
            self.strike_for(crash, event);
            crash
        })
    }
}
