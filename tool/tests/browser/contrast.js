// SPDX-License-Identifier: Apache-2.0 OR MIT
// The texts whose contrast to what is behind them is below WCAG's 4.5 to 1.
(() => {
  const parse = (text) => {
    const numbers = text.match(/-?[\d.]+(e-?\d+)?/g).map(Number);
    const unit = text.startsWith("color(") ? 1 : 255;
    const [red, green, blue, alpha = 1] = numbers;
    return [red / unit, green / unit, blue / unit, alpha];
  };
  const over = (top, bottom) => [0, 1, 2].map((i) => top[i] * top[3] + bottom[i] * (1 - top[3])).concat(1);
  const behind = (element) => {
    const layers = [];
    for (let node = element; node; node = node.parentElement) layers.push(parse(getComputedStyle(node).backgroundColor));
    return layers.reverse().reduce((bottom, top) => over(top, bottom), [1, 1, 1, 1]);
  };
  const luminance = (colour) => {
    const [r, g, b] = colour.slice(0, 3).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, other) => {
    const [high, low] = [luminance(one), luminance(other)].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  };
  // Names inside of strips stand on the strip, not on the page.
  const covered = (element) => element.classList.contains("name");
  const own = (element) => [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
  const visible = (element) => element.checkVisibility() && element.getBoundingClientRect().width > 0;
  const texts = [...document.body.querySelectorAll("*")].filter((e) => own(e) && visible(e) && !covered(e));
  const strip = (text) => {
    const bar = [...text.parentElement.querySelectorAll("rect")].find((r) => r.getAttribute("x") === text.getAttribute("x"));
    return parse(getComputedStyle(bar).fill);
  };
  const names = [...document.querySelectorAll("svg .name")].filter(visible);
  const weak = (element, back) => {
    const style = getComputedStyle(element);
    const colour = parse(element instanceof SVGElement ? style.fill : style.color);
    const ratio = contrast(over(colour, back), back);
    return ratio < 4.5 ? [`${element.tagName}.${element.getAttribute("class")} ${element.textContent.slice(0, 30)}: ${ratio.toFixed(2)}`] : [];
  };
  return texts.flatMap((e) => weak(e, behind(e))).concat(names.flatMap((e) => weak(e, strip(e))));
})()
