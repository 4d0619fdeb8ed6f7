// The page: asks the master for what it knows, again and again, and shows it. It only reads.
"use strict";

const LIVE_MS = 3000;
const HISTORY_MS = 15000;
const PATIENCE_MS = 10000;
const POINTS = 90;
const EVENTS_SHOWN = 200;
const CAUSES = ["origin", "disk", "memory", "master"];

const state = {
	status: null, datasets: [], preloads: [], workers: [], history: null, events: [], run: null, last: 0,
	chosen: null, lostSince: null, heard: null, historyAt: 0,
};

function byId(id) {
	return document.getElementById(id);
}

async function ask(path) {
	const answer = await fetch(path, { signal: AbortSignal.timeout(PATIENCE_MS), credentials: "omit" });
	const json = await answer.json();
	if (!answer.ok)
		throw new Error(json.error ? json.error.text : answer.statusText);
	return json;
}

// What is remembered from one visit to the next; a browser may refuse that.
function remembered(name) {
	try {
		return localStorage.getItem("granary." + name);
	} catch {
		return null;
	}
}

function remember(name, value) {
	try {
		localStorage.setItem("granary." + name, value);
	} catch {
		return;
	}
}

// ---- the head --------------------------------------------------------------------------------

function facts(node, rows) {
	keep(node, rows, (row) => row[0], () => make("div", {}, make("dt"), make("dd")), (div, row) => {
		put(div.firstChild, row[0]);
		put(div.lastChild, row[1]);
	});
}

function showHead() {
	const s = state.status;
	if (s)
		facts(byId("cluster"), [
			[text("cluster"), s.cluster], [text("version"), s.version], [text("epoch"), String(s.epoch)],
			[text("uptime"), duration(s.uptime_s)], [text("workers_n"), String(state.workers.length)],
		]);
	const link = byId("link");
	link.classList.toggle("lost", state.lostSince !== null);
	// Said when it changes, not every three seconds.
	if (state.lostSince !== null)
		put(link, text("lost", clock(state.lostSince)));
	else if (state.heard !== null)
		put(link, "");
}

function tile(key, title, value, note, values, top, second) {
	return { key, title, value, note, values: values || [], top, kind: second ? "spark second" : "spark" };
}

function tiles() {
	const h = state.history ? state.history.cluster : null;
	let used = 0;
	let capacity = 0;
	for (const worker of state.workers)
		for (const tier of worker.tiers || []) {
			used += tier.used;
			capacity += tier.capacity;
		}
	const part = capacity ? used / capacity : null;
	return [
		tile("used", text("tile_cached"), bytes(used), capacity ? text("of", bytes(capacity)) + ", " + ratio(part) : text("capacity_none"),
			h && h.used, capacity || 0),
		tile("hit", text("tile_hit"), ratio(h && lastOf(h.hit_ratio)), h && lastOf(h.hit_ratio) !== null ? "" : text("not_known"), h && h.hit_ratio, 1),
		tile("read", text("tile_read"), rate(h && lastOf(h.read_bytes_per_s)), "", h && h.read_bytes_per_s, 0),
		tile("origin", text("tile_origin"), rate(h && lastOf(h.origin_bytes_per_s)), "", h && h.origin_bytes_per_s, 0, true),
	];
}

function showTiles() {
	keep(byId("tiles"), tiles(), (t) => t.key,
		() => make("div", { class: "tile" }, make("h2"), make("div", { class: "value" }), make("span", { class: "dim" }), make("div")),
		(node, t) => {
			put(node.children[0], t.title);
			put(node.children[1], t.value);
			put(node.children[2], t.note);
			setChart(node.children[3], t.kind, t.values, t.top, t.title + ": " + t.value);
		});
}

// ---- datasets --------------------------------------------------------------------------------

const PHASES = { Bound: "good", Ready: "good", Listing: "busy", Pending: "busy", Failed: "bad" };

function seriesOf(name) {
	return state.history ? state.history.datasets.find((d) => d.name === name) : undefined;
}

function cells(n) {
	return Array.from({ length: n }, () => make("td"));
}

// What narrow screens show before each cell.
function label(row, keys) {
	keys.forEach((key, i) => row.children[i].setAttribute("data-label", key === "#" ? "#" : text(key)));
}

function makeDataset(d) {
	const row = make("tr", {}, ...cells(9));
	const button = make("button", { type: "button", class: "link" });
	button.addEventListener("click", () => choose(d.name));
	row.children[0].append(button);
	row.children[1].append(make("span", { class: "state" }));
	row.children[4].append(makeBar());
	for (const i of [2, 3, 6, 8])
		row.children[i].className = "n";
	return row;
}

function stateClass(node, kind) {
	node.className = "state " + (kind || "");
}

function updateDataset(row, d) {
	const series = seriesOf(d.name);
	const hit = d.hit_ratio === undefined ? (series ? lastOf(series.hit_ratio) : null) : d.hit_ratio;
	const c = row.children;
	label(row, ["name", "phase", "files", "size", "cached", "cached_over_time", "hit_ratio", "hit_over_time", "mounts"]);
	put(c[0].firstChild, d.name);
	c[0].firstChild.setAttribute("aria-expanded", String(state.chosen === d.name));
	put(c[1].firstChild, word(d.phase));
	stateClass(c[1].firstChild, PHASES[d.phase]);
	c[1].title = d.last_error || "";
	put(c[2], d.phase === "Listing" ? text("listed", count(d.listed_keys || 0)) : count(d.total_files));
	put(c[3], bytes(d.total_bytes));
	setBar(c[4].firstChild, d.cached_ratio, text("bar_label", d.name), ratio(d.cached_ratio));
	c[4].title = bytes(d.cached_bytes);
	setChart(c[5], "spark", series ? series.cached_ratio : [], 1, text("cached_over_time") + ", " + d.name + ": " + ratio(d.cached_ratio));
	put(c[6], ratio(hit));
	setChart(c[7], "spark second", series ? series.hit_ratio : [], 1, text("hit_over_time") + ", " + d.name + ": " + ratio(hit));
	put(c[8], count(d.mounted));
}

function showDatasets() {
	keep(byId("dataset-rows"), state.datasets, (d) => d.uuid, makeDataset, updateDataset);
	byId("datasets-none").hidden = state.datasets.length > 0 || !state.status;
	const out = state.history ? state.history.left_out : 0;
	put(byId("datasets-note"), out ? text("left_out", count(out)) : "");
}

// ---- one of them -----------------------------------------------------------------------------

function choose(name) {
	state.chosen = state.chosen === name ? null : name;
	show();
	if (state.chosen)
		byId("detail-title").focus();
}

function detailCharts(series) {
	return [
		["chart", text("chart_cached"), series.cached_ratio, 1, ratio],
		["chart second", text("chart_hit"), series.hit_ratio, 1, ratio],
		["chart", text("chart_read"), series.read_bytes_per_s, 0, rate],
		["chart second", text("chart_origin"), series.origin_bytes_per_s, 0, rate],
	];
}

function updateFigure(figure, [kind, title, values, top, said]) {
	const known = values.filter((v) => v !== null);
	const caption = figure.lastChild;
	put(caption.children[0], title);
	put(caption.children[1], known.length ? text("most", said(Math.max(...known))) : text("no_points"));
	put(caption.children[2], known.length ? text("now", said(lastOf(values))) : "");
	setChart(figure.firstChild, kind, values, top, title);
}

function detailFacts(d) {
	const rows = d.mounts.map((m) => [text("source") + (d.mounts.length > 1 ? " " + m.path : ""), m.url]);
	rows.push([text("consistency"), d.consistency]);
	if (d.generation !== undefined)
		rows.push([text("generation"), d.generation + (d.rolled_back ? " (" + text("rolled_back") + ")" : "")]);
	if (d.priority !== null && d.priority !== undefined)
		rows.push([text("priority"), String(d.priority)]);
	if (d.quota)
		rows.push([text("quota"), bytes(d.quota)]);
	if (d.last_error)
		rows.push([text("last_error"), d.last_error]);
	return rows;
}

function showDetail() {
	const d = state.datasets.find((one) => one.name === state.chosen);
	byId("detail").hidden = !d;
	if (!d)
		return;
	const none = [];
	const series = seriesOf(d.name) || { cached_ratio: none, hit_ratio: none, read_bytes_per_s: none, origin_bytes_per_s: none };
	put(byId("detail-title"), d.name);
	keep(byId("detail-charts"), detailCharts(series), (row) => row[1],
		() => make("figure", {}, make("div"), make("figcaption", {}, make("b"), make("span"), make("span"))), updateFigure);
	facts(byId("detail-facts"), detailFacts(d));
}

// ---- preloads --------------------------------------------------------------------------------

const STATES = { listing: "busy", waiting: "busy", running: "busy", complete: "good", failed: "bad", incomplete: "warn", cancelled: "warn" };

function makePreload() {
	const row = make("tr", {}, ...cells(8));
	row.children[2].append(make("span", { class: "state" }));
	row.children[3].append(makeBar());
	for (const i of [0, 4, 5, 6])
		row.children[i].className = "n";
	return row;
}

function progressOf(p) {
	if (p.state === "complete")
		return 1;
	if (!p.bytes)
		return p.files ? p.files_done / p.files : null;
	return p.bytes_done / p.bytes;
}

function updatePreload(row, p) {
	const c = row.children;
	const part = progressOf(p);
	label(row, ["#", "target", "state", "progress", "files", "rate", "eta", "remark"]);
	put(c[0], String(p.id));
	put(c[1], p.at ? p.target + "/" + p.at : p.target);
	put(c[2].firstChild, word(p.state));
	stateClass(c[2].firstChild, STATES[p.state]);
	setBar(c[3].firstChild, part, text("progress_label", p.id), ratio(part));
	c[3].title = bytes(p.bytes_done) + " / " + bytes(p.bytes);
	put(c[4], count(p.files_done) + " / " + count(p.files));
	put(c[5], p.state === "running" ? rate(p.rate) : "");
	put(c[6], p.state === "running" ? duration(p.eta_s) : "");
	put(c[7], p.reason || "");
}

function showPreloads() {
	keep(byId("preload-rows"), state.preloads.slice(0, 20), (p) => p.id, makePreload, updatePreload);
	byId("preloads-none").hidden = state.preloads.length > 0 || !state.status;
}

// ---- workers, stalls -------------------------------------------------------------------------

function updateTier(node, tier) {
	put(node.children[0], tier.path + " (" + tier.kind + ")");
	put(node.children[1], word(tier.state));
	stateClass(node.children[1], tier.state === "ok" ? "good" : "bad");
	setBar(node.children[2], tier.capacity ? tier.used / tier.capacity : null, text("tier_label", tier.path),
		ratio(tier.capacity ? tier.used / tier.capacity : null));
	put(node.children[3], bytes(tier.used) + " / " + bytes(tier.capacity));
	put(node.children[4], tier.reason);
}

function makeTier() {
	return make("div", { class: "tier" }, make("span", { class: "path" }), make("span", { class: "state" }), makeBar(), make("span"),
		make("span", { class: "reason" }));
}

function updateWorker(node, w) {
	const head = node.firstChild;
	put(head.children[0], "#" + w.number + " " + w.name + " " + w.address);
	put(head.children[1], word(w.state));
	stateClass(head.children[1], { up: "good", down: "bad", out: "bad", draining: "warn", drained: "good" }[w.state]);
	put(head.children[2], [text("owns", w.slots), w.version ? text("version") + " " + w.version : "",
		w.uptime_s === undefined ? "" : text("uptime") + " " + duration(w.uptime_s),
		w.last_seen_s === undefined ? "" : text(w.state === "down" || w.state === "out" ? "silent" : "last_seen", duration(w.last_seen_s)),
		w.draining && !w.drained && w.only_copies !== undefined ? text("only_copies", bytes(w.only_copies)) : "",
	].filter(Boolean).join(", "));
	keep(node.lastChild, w.tiers || [], (t) => t.path, makeTier, updateTier);
}

function showWorkers() {
	const list = byId("worker-list");
	keep(list, state.workers, (w) => w.number,
		() => make("div", { class: "worker" }, make("h3", {}, make("span"), make("span", { class: "state" }), make("span", { class: "dim" })), make("div")),
		updateWorker);
	if (state.status && state.workers.length === 0)
		list.replaceChildren(make("p", { class: "none" }, text("no_worker")));
}

function stallRows() {
	const h = state.history ? state.history.cluster.stalls : null;
	return CAUSES.map((cause) => ({
		cause,
		values: h ? h[cause] : [],
		window: h ? h[cause].reduce((sum, n) => sum + (n || 0), 0) : null,
		all: state.workers.reduce((sum, w) => sum + (w.stalls ? w.stalls[cause] : 0), 0),
	}));
}

function showStalls() {
	keep(byId("stall-rows"), stallRows(), (row) => row.cause, () => {
		const row = make("tr", {}, ...cells(4));
		row.children[1].className = row.children[3].className = "n";
		return row;
	}, (row, s) => {
		label(row, ["cause", "in_window", "over_time", "since_start"]);
		put(row.children[0], word(s.cause));
		put(row.children[1], count(s.window));
		setChart(row.children[2], "spark second", s.values, Math.max(1, ...s.values), word(s.cause) + ": " + count(s.window));
		put(row.children[3], count(s.all));
	});
}

// ---- events ----------------------------------------------------------------------------------

function showEvents() {
	keep(byId("event-list"), state.events, (e) => state.run + "." + e.seq,
		() => make("li", {}, make("time"), make("span", { class: "state" }), make("span", { class: "text" }, make("span", { class: "on" }), " ", make("span"))),
		(node, e) => {
			put(node.children[0], stamp(1000 * e.time));
			node.children[0].setAttribute("datetime", new Date(1000 * e.time).toISOString());
			put(node.children[1], word(e.kind));
			stateClass(node.children[1], { info: "", warn: "warn", error: "bad" }[e.level]);
			put(node.children[2].firstChild, e.on);
			put(node.children[2].lastChild, e.text);
		});
}

// Newest first; a master that began anew has other events.
function takeEvents(answer) {
	if (state.run !== answer.run) {
		const again = state.run !== null;
		state.run = answer.run;
		state.events = [];
		state.last = 0;
		if (again)
			return;
	}
	for (const event of answer.events)
		state.events.unshift(event);
	state.events.length = Math.min(state.events.length, EVENTS_SHOWN);
	if (answer.events.length)
		state.last = answer.events[answer.events.length - 1].seq;
}

// ---- again and again -------------------------------------------------------------------------

function show() {
	showHead();
	showTiles();
	showDatasets();
	showDetail();
	showPreloads();
	showWorkers();
	showStalls();
	showEvents();
}

async function look() {
	const after = state.run === null ? "" : "?after=" + state.last;
	const [status, datasets, preloads, workers, events] = await Promise.all([
		ask("/v1/status"), ask("/v1/datasets"), ask("/v1/preloads"), ask("/v1/workers"), ask("/v1/events" + after),
	]);
	state.status = status;
	state.datasets = datasets.datasets;
	state.preloads = preloads.preloads;
	state.workers = workers.workers;
	takeEvents(events);
	if (Date.now() - state.historyAt >= HISTORY_MS)
		await lookBack();
}

async function lookBack() {
	state.historyAt = Date.now();
	state.history = await ask("/v1/history?points=" + POINTS + "&seconds=" + byId("window").value);
}

let looking = false;

async function turn() {
	if (looking || document.hidden)
		return;
	looking = true;
	try {
		await look();
		state.heard = Date.now();
		state.lostSince = null;
	} catch {
		state.lostSince = state.lostSince === null ? Date.now() : state.lostSince;
	}
	looking = false;
	show();
}

function showTheme(theme) {
	if (theme === "light" || theme === "dark")
		document.documentElement.dataset.theme = theme;
}

function setTheme() {
	const dark = document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
	const theme = dark === "dark" ? "light" : "dark";
	showTheme(theme);
	remember("theme", theme);
}

function showLanguage(to) {
	const button = byId("language");
	setLanguage(to);
	button.lang = language === "zh" ? "en" : "zh";
	put(button, language === "zh" ? "English" : "中文");
}

function begin() {
	const wanted = remembered("window");
	if (wanted && byId("window").querySelector("option[value=\"" + CSS.escape(wanted) + "\"]"))
		byId("window").value = wanted;
	showTheme(remembered("theme"));
	showLanguage(remembered("language") || (navigator.language.startsWith("zh") ? "zh" : "en"));
	byId("language").addEventListener("click", () => {
		showLanguage(language === "zh" ? "en" : "zh");
		remember("language", language);
		show();
	});
	byId("theme").addEventListener("click", setTheme);
	byId("window").addEventListener("change", () => {
		remember("window", byId("window").value);
		state.historyAt = 0;
		turn();
	});
	byId("detail-close").addEventListener("click", () => {
		choose(state.chosen);
		byId("datasets").querySelector("button").focus();
	});
	document.addEventListener("visibilitychange", turn);
	turn();
	setInterval(turn, LIVE_MS);
}

begin();
