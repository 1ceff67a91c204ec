// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine's interrupt controller (XIVE), which the hypervisor has wholly to itself.
//!
//! Nothing interrupts the hypervisor but its decrementer, doorbells, and what the controller has for it: escalations, the
//! word that something came for a vCPU that is resident nowhere, and interrupts of devices that services drive.

use arrayvec::ArrayVec;
use dtoolkit::fdt::Fdt;
use dtoolkit::{Node, Property};
use spin::Once;

use super::firmware::{self, Error};
use super::tima;

/// The most chips that are given memory for the controller's tables.
const MAX_CHIPS: usize = 16;

/// The controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Controller {
    /// The hypervisor's page of the thread interrupt management area.
    pub hypervisor_page: u64,
    /// The operating system's page of it.
    pub os_page: u64,
    /// The chips whose tables want memory.
    chips: ArrayVec<u32, MAX_CHIPS>,
}

static CONTROLLER: Once<Controller> = Once::new();

/// Finds the controller in the machine's device tree (OPAL's `doc/xive.rst`, section I).
pub fn discover(fdt: Fdt<'_>) -> Option<Controller> {
    let is_xive = |property: &[u8]| property.split(|byte| *byte == 0).any(|name| name == b"ibm,opal-xive-pe");
    let node = fdt.root().children().find(|node| {
        node.properties().any(|property| property.name() == "compatible" && is_xive(property.value()))
    })?;
    let pages: ArrayVec<u64, 4> =
        node.reg().ok()??.take(4).filter_map(|page| page.address::<u64>().ok()).collect();
    let mut chips = ArrayVec::new();
    if let Some(property) = node.properties().find(|property| property.name() == "ibm,xive-provision-chips") {
        for cell in property.value().as_chunks::<4>().0 {
            let _ = chips.try_push(u32::from_be_bytes(*cell));
        }
    }
    Some(Controller { hypervisor_page: *pages.get(1)?, os_page: *pages.get(2)?, chips })
}

/// Takes the controller over. On the boot CPU, before any other starts.
///
/// # Errors
/// What the firmware says.
///
/// # Safety
/// The controller is the one of the machine's device tree.
pub unsafe fn init(controller: Controller) -> Result<(), Error> {
    firmware::reset()?;
    // SAFETY: the device tree's page, and the controller is in exploitation mode.
    unsafe { tima::set(controller.hypervisor_page) };
    CONTROLLER.call_once(|| controller);
    Ok(())
}

/// Returns the controller; it is there from [`init`] on.
pub(super) fn controller() -> Option<&'static Controller> {
    CONTROLLER.get()
}

/// Allocates virtual processors for `count` vCPUs. Returns the first one's number.
///
/// # Errors
/// What the firmware says.
pub(super) fn allocate_processors(count: usize) -> Result<u64, Error> {
    let order = count.next_power_of_two().trailing_zeros();
    loop {
        match firmware::allocate_processors(order) {
            Err(error) if error.wants_memory() => provide()?,
            other => return other,
        }
    }
}

/// What a page's absence is called: OPAL_RESOURCE.
const NO_MEMORY: Error = Error(-10);

/// Gives the firmware memory for its tables, as it has asked for.
fn provide() -> Result<(), Error> {
    /// 64 KiB each.
    const PAGES: u64 = 16;
    for chip in &controller().ok_or(NO_MEMORY)?.chips {
        // SAFETY: aligned to its size, and nobody else has it.
        unsafe { firmware::donate(*chip, pages(PAGES)?)? };
    }
    Ok(())
}

/// Allocates a cleared page for a queue, for ever.
pub(super) fn page() -> Result<u64, Error> {
    pages(1)
}

#[cfg(target_os = "none")]
fn pages(count: u64) -> Result<u64, Error> {
    crate::memory::pages(count).map_err(|_| NO_MEMORY)
}

/// On the host they are the heap's.
#[cfg(not(target_os = "none"))]
fn pages(count: u64) -> Result<u64, Error> {
    const PAGE: usize = 4096;
    let memory = std::vec![0u64; count as usize * PAGE / size_of::<u64>()].leak();
    Ok(memory.as_mut_ptr().expose_provenance() as u64)
}
