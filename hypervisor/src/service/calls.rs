// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What calls of services reach.

use core::fmt;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};

use turnstile_bundle::ServiceDevice;
use turnstile_devices::Offer;
use turnstile_service::abi::{self, Sent};
use turnstile_vm::attention::Reasons;

use super::{Hosted, LINE, Member};
use crate::alarm;
use crate::arch::cpu;
use crate::arch::exit::server;
use crate::arch::service::{Outside, Touch, Typed};
use crate::arch::time;
use crate::driven;
use crate::line;
use crate::machine::{self, Site, shared};

/// How long after now an alarm goes off at the earliest, in nanoseconds: one that is set whenever it has gone off leaves nearly all
/// time to its guest, and to others on that CPU.
const SOONEST: u64 = 100_000;

/// Whether services are to find a pool empty every second time.
static DRY: AtomicBool = AtomicBool::new(false);

/// Has services find a pool empty every second time that they need memory from there (`provoke=dry`).
pub fn provoke_dry() {
    DRY.store(true, Ordering::Relaxed);
}

impl Hosted {
    /// Takes a character for the log; a line is written at its end.
    fn log_character(&self, line: &mut heapless::String<LINE>, byte: u8) {
        let character = match byte {
            b' '..=b'~' => byte.into(),
            // Nothing that a terminal obeys.
            _ => '?',
        };
        if byte != b'\n' && line.push(character).is_ok() {
            return;
        }
        line::report(format_args!("service {}: {line}", self.name));
        line.clear();
        if byte != b'\n' {
            let _ = line.push(character);
        }
    }
}

impl Outside for Hosted {
    fn print(&self, count: u64, words: [u64; 2]) -> u64 {
        if let Some(vm) = self.owner() {
            let bytes: heapless::Vec<u8, { abi::CHARACTERS as usize }> =
                abi::characters(count, words).collect();
            line::console(vm, &bytes);
        }
        // Relaxed: only who is inside the service prints.
        self.printed.fetch_add(count, Ordering::Relaxed).wrapping_add(count)
    }

    fn log(&self, count: u64, words: [u64; 2]) {
        let mut line = self.line.lock();
        abi::characters(count, words).for_each(|byte| self.log_character(&mut line, byte));
    }

    fn random(&self) -> Option<u64> {
        cpu::random()
    }

    fn lines(&self, changed: u64, levels: u64) {
        if changed & 1 != 0
            && let [Member { vm, site: Site::Device(place), .. }] = self.members.as_slice()
        {
            machine::set_line(vm, place.line, levels & 1 != 0);
        }
    }

    fn message(&self, member: usize, address: u64, data: u64) -> bool {
        match self.members.get(member) {
            Some(Member { vm, site: Site::Function(_) | Site::Mmio(_), .. }) => {
                machine::message(vm, address, data)
            }
            _ => false,
        }
    }

    fn decode(&self, member: usize, bar: u64, address: u64, size: u64) -> bool {
        let Some(Member { vm, site: Site::Function(function), .. }) = self.members.get(member) else {
            return false;
        };
        let (Some(service), Some(services)) = (self.service.get(), vm.services()) else { return false };
        let window = &function.window;
        let address = function.address(address);
        let fits = size.is_power_of_two()
            && address.is_multiple_of(size)
            && window.contains(&address)
            && size <= window.end - address;
        let device = abi::member_device(member as u64, abi::BARS + bar);
        let moved =
            bar < abi::BAR_COUNT && services.move_bar(service, device, address, if fits { size } else { 0 });
        vm.device_has_moved();
        moved && (fits || size == 0)
    }

    fn call(&self, members: u64) {
        if self.cpu.is_some() {
            return;
        }
        for (number, member) in self.members.iter().enumerate() {
            if members >> number & 1 != 0 && (!self.is_shared() || member.is_running()) {
                member.vm.raise_all(Reasons::SERVICE);
            }
        }
    }

    fn wake(&self) {
        self.cpu.into_iter().for_each(server::wake);
    }

    fn alarm(&self, at: u64) -> u64 {
        let now = time::uptime().nanoseconds();
        alarm::clear(self.alarm);
        if at != u64::MAX {
            let at = at.max(now.saturating_add(SOONEST));
            alarm::set_number(self.alarm, time::in_ticks(at).min(u64::MAX - 1));
        }
        now
    }

    fn typed(&self) -> Typed {
        if self.is(ServiceDevice::Ports) {
            return self.ports.lock().offer();
        }
        if self.is(ServiceDevice::Balloon) {
            let size = self.wanted_pages.load(Ordering::Relaxed);
            return Typed { port: 0, count: 0, characters: 0, position: 0, size, is_news: true };
        }
        let (Offer { bytes, count, position }, size, is_news) = self.typed.lock().offer();
        let characters = u64::from_le_bytes(bytes);
        Typed { port: 0, count: count as u64, characters, position, size, is_news }
    }

    fn took(&self, offered: &Typed, count: u64) -> bool {
        if let Some(vm) = self.owner().filter(|_| self.is(ServiceDevice::Ports)) {
            return self.ports.lock().took(vm, offered, count);
        }
        if self.is(ServiceDevice::Balloon) {
            // It may have heard of an earlier wish, which waited for memory.
            return offered.size != self.wanted_pages.load(Ordering::Relaxed);
        }
        let mut typed = self.typed.lock();
        let (room, has_more) = typed.took(count);
        self.tell_room(room);
        has_more
    }

    fn has_room(&self) {
        self.ports.lock().offer_again();
    }

    fn send(&self, port: u64, count: u64, words: [u64; 2]) -> Option<u64> {
        let bytes: heapless::Vec<u8, { abi::CHARACTERS as usize }> = abi::characters(count, words).collect();
        self.ports.lock().send(self.owner()?, port, &bytes).map(Sent::word)
    }

    fn port_name(&self, port: u64, word: u64) -> Option<u64> {
        self.ports.lock().name(port, word)
    }

    fn allow(&self, allowed: bool) {
        if let Some(function) = &self.driven {
            function.allow(allowed);
            // An IOMMU that does not interrupt is looked at here: a device that was refused something fails, and begins anew.
            driven::report(function);
        }
    }

    fn unmask(&self) {
        if let Some(function) = &self.driven {
            function.mask(false);
        }
    }

    fn touch(&self, member: usize, address: u64) -> Result<u64, Touch> {
        let Some(Member { vm, .. }) = self.members.get(member) else { return Err(Touch::Foreign) };
        // Relaxed: only who is inside the service touches. What the guest has, nobody misses.
        let is_second = self.touches.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
        if DRY.load(Ordering::Relaxed) && is_second && !vm.has_block(address) {
            return Err(Touch::Dry);
        }
        vm.reach(address)
    }

    fn has_memory(&self, member: usize) -> bool {
        self.members.get(member).is_some_and(|member| member.vm.is_pooled()) && shared::pool_has_memory()
    }

    fn give_up(&self, guest: Range<u64>) -> Option<u64> {
        let vm = self.owner().filter(|vm| vm.is_pooled())?;
        let mut released = self.released.lock();
        if guest.is_empty() && released.count() != 0 {
            vm.begin_short_pause();
        } else if !guest.is_empty() && !released.add(guest) {
            return None;
        }
        Some(released.count())
    }

    fn keep(&self) {
        self.released.lock().clear();
    }

    fn shut_out(&self, members: u64) {
        for (_, member) in self.members.iter().enumerate().filter(|(number, _)| members >> number & 1 != 0) {
            line::report(format_args!(
                "service {}: does without VM {} for a while, and longer each time: it crashes on what that asks of it",
                self.name, member.vm.name
            ));
        }
    }

    fn crashed(&self, number: u32, report: fmt::Arguments<'_>) {
        line::report(format_args!("{report}\nservice {}: crash {number}", self.name));
        self.introduce();
    }
}
