// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calling Rust by way of assembly.

struct Call<T, F> {
    function: Option<F>,
    result: Option<T>,
}

extern "C" fn call<T, F: FnOnce() -> T>(data: *mut u8) {
    // SAFETY: `by` hands out the address of its own `Call` of the same types together with this function.
    let call = unsafe { &mut *data.cast::<Call<T, F>>() };
    call.result = call.function.take().map(|function| function());
}

/// Calls a function by way of `enter`, which gets a function and its argument and says whether that returned. Returns what the
/// function returned; if it did not return, what it would have dropped stays.
///
/// # Safety
/// `enter` calls what it gets with the argument that it gets, once.
pub unsafe fn by<T, F: FnOnce() -> T>(
    enter: impl FnOnce(extern "C" fn(*mut u8), *mut u8) -> bool,
    function: F,
) -> Option<T> {
    let mut data = Call { function: Some(function), result: None };
    let returned = enter(call::<T, F>, (&raw mut data).cast());
    data.result.filter(|_| returned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_returned_has_a_result() {
        for returns in [true, false] {
            let enter = |function: extern "C" fn(*mut u8), argument| {
                function(argument);
                returns
            };
            // SAFETY: `enter` calls it once.
            let result = unsafe { by(enter, || 7) };
            assert_eq!(result, returns.then_some(7));
        }
    }
}
