// Numbers as people read them, elements and charts. Whatever is shown is text: nothing here makes markup of a string.
"use strict";

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

function bytes(n) {
	if (n === null || n === undefined)
		return "–";
	let unit = 0;
	while (n >= 1024 && unit < UNITS.length - 1) {
		n /= 1024;
		unit++;
	}
	return (unit === 0 ? n.toFixed(0) : n.toFixed(n < 10 ? 2 : n < 100 ? 1 : 0)) + " " + UNITS[unit];
}

function rate(n) {
	return n === null || n === undefined ? "–" : bytes(n) + "/s";
}

function count(n) {
	return n === null || n === undefined ? "–" : n.toLocaleString("en-US");
}

// 0.9399 is 93.9%, as the commands print it: less than all is not 100.0%.
function ratio(n) {
	return n === null || n === undefined ? "–" : (Math.floor(n * 1000 + 1e-9) / 10).toFixed(1) + "%";
}

function duration(s) {
	if (s === null || s === undefined || s < 0)
		return "–";
	if (s < 60)
		return Math.round(s) + " s";
	if (s < 3600)
		return Math.floor(s / 60) + " min";
	if (s < 86400)
		return Math.floor(s / 3600) + " h " + Math.floor(s % 3600 / 60) + " min";
	return Math.floor(s / 86400) + " d " + Math.floor(s % 86400 / 3600) + " h";
}

function two(n) {
	return String(n).padStart(2, "0");
}

function clock(ms) {
	const t = new Date(ms);
	return two(t.getHours()) + ":" + two(t.getMinutes()) + ":" + two(t.getSeconds());
}

function stamp(ms) {
	const t = new Date(ms);
	return t.getFullYear() + "-" + two(t.getMonth() + 1) + "-" + two(t.getDate()) + " " + clock(ms);
}

// An element with attributes and children; strings become text.
function make(name, attributes, ...children) {
	const node = document.createElement(name);
	for (const [key, value] of Object.entries(attributes || {}))
		node.setAttribute(key, value);
	node.append(...children.map((child) => child instanceof Node ? child : String(child)));
	return node;
}

function draw(name, attributes) {
	const node = document.createElementNS("http://www.w3.org/2000/svg", name);
	for (const [key, value] of Object.entries(attributes))
		node.setAttribute(key, value);
	return node;
}

function put(node, value) {
	if (node.textContent !== value)
		node.textContent = value;
}

// Brings the children of `parent` into the order of `items`; each keeps its element, and with it focus and place.
function keep(parent, items, keyOf, create, update) {
	const had = new Map();
	for (const node of parent.children)
		had.set(node.dataset.key, node);
	let before = null;
	for (const item of items) {
		const key = String(keyOf(item));
		let node = had.get(key);
		if (node) {
			had.delete(key);
		} else {
			node = create(item);
			node.dataset.key = key;
		}
		update(node, item);
		const next = before ? before.nextSibling : parent.firstChild;
		if (next !== node)
			parent.insertBefore(node, next);
		before = node;
	}
	for (const node of had.values())
		node.remove();
}

function makeBar() {
	return make("div", { class: "bar" }, make("div", { class: "track", role: "progressbar", "aria-valuemin": "0", "aria-valuemax": "100" },
		make("span")), make("output"));
}

// `value` from 0 to 1, null: not known.
function setBar(bar, value, label, said) {
	const track = bar.firstChild;
	const at = value === null || value === undefined ? 0 : 100 * Math.max(0, Math.min(1, value));
	track.setAttribute("aria-label", label);
	if (value === null || value === undefined)
		track.removeAttribute("aria-valuenow");
	else
		track.setAttribute("aria-valuenow", at.toFixed(1));
	track.classList.toggle("full", at >= 100);
	track.firstChild.style.width = at + "%";
	put(bar.lastChild, said);
}

// Pieces of a line: points that are null are gaps.
function pieces(values, top, width, height) {
	const found = [];
	let piece = null;
	const step = values.length > 1 ? width / (values.length - 1) : 0;
	values.forEach((value, i) => {
		if (value === null) {
			piece = null;
			return;
		}
		if (!piece)
			found.push(piece = []);
		piece.push([values.length > 1 ? i * step : width, height - Math.min(1, value / top) * height]);
	});
	return found;
}

// A chart of values over equal steps. `top`: of the scale; 0: of the largest value.
function chart(kind, values, top, label) {
	const width = 300;
	const height = kind.startsWith("chart") ? 110 : 28;
	const pad = 3;
	const svg = draw("svg", { class: kind, viewBox: "0 0 " + width + " " + (height + 2 * pad), preserveAspectRatio: "none", role: "img", "aria-label": label });
	const most = top || Math.max(1e-9, ...values.map((v) => v === null ? 0 : v));
	svg.append(draw("line", { class: "axis", x1: 0, x2: width, y1: height + pad, y2: height + pad }));
	for (const piece of pieces(values, most, width, height)) {
		const points = piece.map(([x, y]) => x.toFixed(1) + "," + (y + pad).toFixed(1));
		const [x0] = piece[0];
		const [x1, y1] = piece[piece.length - 1];
		if (piece.length > 1) {
			svg.append(draw("polygon", { class: "area", points: [x0 + "," + (height + pad), ...points, x1 + "," + (height + pad)].join(" ") }));
			svg.append(draw("polyline", { class: "stroke", points: points.join(" ") }));
		} else {
			svg.append(draw("rect", { class: "dot", x: Math.max(0, x1 - 3), y: y1 + pad - 1.5, width: 3, height: 3 }));
		}
	}
	return svg;
}

function lastOf(values) {
	for (let i = values.length - 1; i >= 0; i--)
		if (values[i] !== null)
			return values[i];
	return null;
}

// Puts a chart into a node, when it is another one than before.
function setChart(node, kind, values, top, label) {
	const key = kind + label + JSON.stringify(values);
	if (node.chartKey === key)
		return;
	node.chartKey = key;
	node.replaceChildren(chart(kind, values, top, label));
}
