// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A doorbell as monitors have them: KVM turns each write into an event by itself, and the guest goes on; a thread on another CPU
//! hears it (Linux, Documentation/virt/kvm/api.rst, `KVM_IOEVENTFD`). The device is as `services/doorbell` of Turnstile is, as far as
//! the measuring guest uses it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::host::pin;

/// The offset of the register that rings.
const RING: u64 = 0x100;

/// A doorbell whose thread runs.
#[derive(Clone, Debug)]
pub struct Doorbell {
    base: u64,
    heard: Arc<AtomicU64>,
}

impl Doorbell {
    /// Where a device at `base` is rung.
    pub fn place(base: u64) -> u64 {
        base.wrapping_add(RING)
    }

    /// Starts the thread on a CPU of the host. `hear` waits until the doorbell is rung, and returns how often it was.
    ///
    /// # Errors
    /// The kernel's.
    pub fn start(
        base: u64,
        cpu: usize,
        mut hear: impl FnMut() -> io::Result<u64> + Send + 'static,
    ) -> io::Result<Self> {
        let doorbell = Self { base, heard: Arc::default() };
        let heard = Arc::clone(&doorbell.heard);
        thread::Builder::new().name("doorbell".to_owned()).spawn(move || {
            // A guest that nobody hears says so.
            if let Err(error) = pin(cpu) {
                return println!("@error the doorbell's thread: {error:#}");
            }
            loop {
                match hear() {
                    Ok(count) => _ = heard.fetch_add(count, Ordering::Relaxed),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return println!("@error the doorbell's thread: {error}"),
                }
            }
        })?;
        Ok(doorbell)
    }

    /// Reads the register that tells how often it was heard; `None` elsewhere.
    pub fn read(&self, address: u64) -> Option<u64> {
        (address == self.base).then(|| self.heard.load(Ordering::Relaxed))
    }
}

/// Reads where there is no other device, and so nothing that vCPUs share: ones, unless a doorbell is there.
pub fn read_or_ones(doorbell: Option<&Doorbell>, address: u64) -> u64 {
    doorbell.and_then(|doorbell| doorbell.read(address)).unwrap_or(u64::MAX)
}

/// Gives a machine the doorbell that the options ask for.
///
/// # Errors
/// KVM's.
#[cfg(all(any(target_arch = "aarch64", target_arch = "x86_64"), target_os = "linux"))]
pub fn connect(vm: &kvm_ioctls::VmFd, options: &crate::options::Options) -> anyhow::Result<Option<Doorbell>> {
    use anyhow::Context;
    use kvm_ioctls::{IoEventAddress, NoDatamatch};
    use vmm_sys_util::eventfd::EventFd;

    let Some(base) = options.doorbell else { return Ok(None) };
    let event = EventFd::new(0).context("cannot make an event")?;
    let place = IoEventAddress::Mmio(Doorbell::place(base));
    vm.register_ioevent(&event, &place, NoDatamatch).context("cannot make writes an event")?;
    let doorbell = Doorbell::start(base, options.doorbell_cpu(), move || event.read());
    doorbell.map(Some).context("cannot start the doorbell's thread")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn what_is_heard_is_counted() {
        let (ring, rings) = mpsc::channel();
        let (heard, hears) = mpsc::channel();
        let hear = move || {
            // The last one was counted.
            heard.send(()).map_err(io::Error::other)?;
            rings.recv().map_err(io::Error::other)
        };
        let doorbell = Doorbell::start(0x1000, 0, hear).unwrap();
        assert_eq!(Doorbell::place(0x1000), 0x1100);
        for count in [1, 2] {
            hears.recv().unwrap();
            ring.send(count).unwrap();
        }
        hears.recv().unwrap();
        assert_eq!((doorbell.read(0x1000), doorbell.read(0x1100), doorbell.read(0)), (Some(3), None, None));
    }
}
