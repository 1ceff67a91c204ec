// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine's serial line: one writer at a time, whole messages.

use core::fmt::{self, Write};

use spin::Mutex;

/// A serial port that is written and read a byte at a time. It never waits for ever: bytes for a port that does not
/// take them are dropped.
pub trait Port: Sync {
    /// Sends a byte.
    fn put(&self, byte: u8);
    /// Sends bytes, as they are.
    fn write(&self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.put(*byte));
    }
    /// Waits until everything has been sent.
    fn flush(&self);
    /// Takes a received byte, if there is one.
    fn get(&self) -> Option<u8>;
    /// Lets received bytes raise the port's interrupt.
    fn enable_receive_interrupt(&self);
    /// Keeps received bytes from raising the port's interrupt, or lets them again; those that are there already raise it then.
    fn mask_receive_interrupt(&self, masked: bool);
}

static UART: Mutex<Option<&'static dyn Port>> = Mutex::new(None);

struct Text<'a>(&'a dyn Port);

impl Write for Text<'_> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        for line in s.split_inclusive('\n') {
            match line.strip_suffix('\n') {
                Some(text) => {
                    self.0.write(text.as_bytes());
                    self.0.write(b"\r\n");
                }
                None => self.0.write(line.as_bytes()),
            }
        }
        Ok(())
    }
}

/// Uses `uart` from now on.
pub fn set(uart: &'static dyn Port) {
    *UART.lock() = Some(uart);
}

/// Sends bytes as they are, undivided.
pub fn write(bytes: &[u8]) {
    if let Some(uart) = UART.lock().as_ref() {
        uart.write(bytes);
    }
}

/// Prints text; a newline is sent as carriage return and line feed.
pub fn print(arguments: fmt::Arguments<'_>) {
    if let Some(uart) = UART.lock().as_ref() {
        let _ = Text(*uart).write_fmt(arguments);
    }
}

/// Prints text from a CPU that will not run on: the line is taken even from a holder that died with it.
pub fn print_last(arguments: fmt::Arguments<'_>) {
    for _ in 0..1_000_000 {
        if let Some(guard) = UART.try_lock() {
            if let Some(uart) = guard.as_ref() {
                let _ = Text(*uart).write_fmt(arguments);
            }
            return;
        }
        crate::relax();
    }
    // SAFETY: this CPU stops after its report; text of another CPU may be mixed in, nothing else is at stake.
    unsafe { UART.force_unlock() };
    if let Some(uart) = UART.lock().as_ref() {
        let _ = Text(*uart).write_fmt(arguments);
    }
}

/// Sends bytes as they are from a CPU that will not run on; dropped if another one is sending.
pub fn write_last(bytes: &[u8]) {
    if let Some(guard) = UART.try_lock()
        && let Some(uart) = guard.as_ref()
    {
        uart.write(bytes);
    }
}

/// Waits until everything has been sent.
pub fn flush() {
    if let Some(uart) = UART.lock().as_ref() {
        uart.flush();
    }
}

/// As [`flush`], for a CPU that will not run on.
pub fn flush_last() {
    if let Some(guard) = UART.try_lock()
        && let Some(uart) = guard.as_ref()
    {
        uart.flush();
    }
}

/// Takes a received byte, if there is one.
pub fn read() -> Option<u8> {
    UART.lock().as_ref()?.get()
}

/// Lets received bytes raise the port's interrupt.
pub fn enable_receive_interrupt() {
    if let Some(uart) = UART.lock().as_ref() {
        uart.enable_receive_interrupt();
    }
}

/// Keeps received bytes from raising the port's interrupt, or lets them again.
pub fn mask_receive_interrupt(masked: bool) {
    if let Some(uart) = UART.lock().as_ref() {
        uart.mask_receive_interrupt(masked);
    }
}

/// Prints a line of text to the machine's serial line.
#[macro_export]
macro_rules! println {
    ($($argument:tt)*) => { $crate::console::print(format_args!("{}\n", format_args!($($argument)*))) };
}
