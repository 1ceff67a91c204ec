// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The one value of a program's type, and what is done with each event.

use core::cell::UnsafeCell;

use turnstile_service::abi::{
    Answer, DEVICE_GUARDED, DEVICE_MEMORY, DEVICE_READY, DISK, IMAGE, Kind, REGISTERS,
};

use crate::calls::done;
use crate::device;
use crate::event::Event;
use crate::layers;
use crate::memory;
use crate::service::{Attach, Service};
use crate::storage;

/// A service's state.
pub struct State<S>(UnsafeCell<S>);

// SAFETY: only `run` reaches the value, and its caller says that nobody else does meanwhile.
unsafe impl<S> Sync for State<S> {}

impl<S: Service> State<S> {
    /// Makes the state of a service that has had no event.
    #[expect(clippy::new_without_default, reason = "made by the macro alone, as a static")]
    pub const fn new() -> Self {
        Self(UnsafeCell::new(S::NEW))
    }
}

/// Handles the event in the registers.
///
/// # Safety
/// Nothing else uses the state, until it is entered anew.
#[inline(always)] // Once in each program.
pub unsafe fn run<S: Service>(state: &State<S>, registers: [u64; REGISTERS]) -> ! {
    // SAFETY: the caller's promise.
    let service = unsafe { &mut *state.0.get() };
    let [kind, a, b, c, d, e] = registers;
    if const { is_rung::<S>() } {
        if kind == Kind::Doorbell as u64 {
            done(&service.event(Event::Doorbell { queues: a, now: b }));
        }
        // An array of its own: the others' stays in registers.
        done(&seldom(service, [kind, a, b, c, d, e]));
    }
    if kind >= Kind::Memory as u64 {
        done(&seldom(service, [kind, a, b, c, d, e]));
    }
    done(&service.event(Event::from_registers(registers)))
}

/// Says whether guests ring the service: then that is what most of its events are.
const fn is_rung<S: Service>() -> bool {
    S::DOORBELLS.size != 0
}

/// Handles an event of a member's life, or of the machine's device; of a service with doorbells any other. It takes no registers from the way of
/// those that are frequent.
#[cold]
#[inline(never)]
fn seldom<S: Service>(service: &mut S, registers: [u64; REGISTERS]) -> Answer {
    match Kind::from_number(registers[0]) {
        Some(Kind::Attach) => attach(service, registers),
        Some(Kind::Detach) => detach(service, registers[1]),
        Some(Kind::Memory) => remember(registers),
        Some(Kind::Device) => show(service, registers),
        Some(Kind::Interrupt) => service.interrupt(registers[1]),
        _ if is_rung::<S>() => service.event(Event::from_registers(registers)),
        _ => service.event(Event::Unknown),
    }
}

fn attach<S: Service>(service: &mut S, [_, kept, bars, member, first, second]: [u64; REGISTERS]) -> Answer {
    service.attach(Attach { kept: kept != 0, bars, member, settings: [first, second] })
}

fn detach<S: Service>(service: &mut S, member: u64) -> Answer {
    memory::detach(member);
    service.detach(member)
}

fn remember([_, number, a, b, c, d]: [u64; REGISTERS]) -> Answer {
    match (number & DISK, number & IMAGE) {
        (0, _) => memory::attach([number, a, b, c, d]),
        (_, 0) => storage::attach([number, a, b, c, d]),
        _ => layers::attach([a, b, c, d]),
    }
    Answer::default()
}

fn show<S: Service>(service: &mut S, [_, part, a, b, c, _]: [u64; REGISTERS]) -> Answer {
    if part == DEVICE_READY {
        device::guard(b & DEVICE_GUARDED != 0);
        return service.device([a, b & !DEVICE_GUARDED]);
    }
    device::attach([part, a, b, c]);
    match part {
        DEVICE_MEMORY => service.reset(),
        _ => Answer::default(),
    }
}

#[cfg(test)]
mod tests {
    use turnstile_service::abi::member_device;

    use turnstile_virtio::driver::pci::Function as _;

    use super::*;
    use crate::device::Device;
    use crate::memory::{GuestMemory, Memory};

    /// What it was told of its device.
    struct Nothing(Option<[u64; 2]>);

    impl Service for Nothing {
        const NEW: Self = Self(None);

        fn device(&mut self, settings: [u64; 2]) -> Answer {
            self.0 = Some(settings);
            Answer::default()
        }

        fn event(&mut self, _: Event) -> Answer {
            Answer::default()
        }
    }

    #[test]
    fn a_device_is_ready_with_what_the_configuration_says() {
        let mut service = Nothing(None);
        let mut show = |part, [a, b]: [u64; 2]| {
            seldom(&mut service, [Kind::Device as u64, part, a, b, 0, 0]);
            service.0
        };
        assert_eq!(show(0, [0; 2]), None, "a part");
        assert_eq!(show(DEVICE_READY, [1 << 63 | 2, 7]), Some([1 << 63 | 2, 7]));
        assert!(!Device::own().is_guarded());
        assert_eq!(
            show(DEVICE_READY, [0, DEVICE_GUARDED | 7]),
            Some([0, 7]),
            "what is the device's is kept from it"
        );
        assert!(Device::own().is_guarded());
    }

    /// This member is of no other test.
    #[test]
    fn memory_of_who_has_left_is_forgotten() {
        let memory = GuestMemory::of(5).unwrap();
        remember([Kind::Memory as u64, member_device(5, 0), 0x1000, 16, 0x2000, 0]);
        assert!(memory.contains(0x1000, 16));
        detach(&mut Nothing(None), 5);
        assert!(!memory.contains(0x1000, 1));
    }
}
