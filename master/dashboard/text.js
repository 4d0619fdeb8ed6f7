// What the page says, in the languages that it knows. Words of data (states, causes) are under "word.".
"use strict";

const TEXTS = {
	en: {
		skip: "To the datasets", window: "Window", theme: "Light or dark", summary: "Summary",
		datasets: "Datasets", name: "Name", phase: "Phase", files: "Files", size: "Size", cached: "Cached",
		cached_over_time: "Cached over time", hit_ratio: "Hit ratio", hit_over_time: "Hit ratio over time", mounts: "Mounts",
		datasets_none: "There is no dataset yet: cachectl dataset create NAME URL", close: "Close",
		preloads: "Preloads", target: "Of what", state: "State", progress: "Progress", rate: "Rate", eta: "Left", remark: "Remark",
		preloads_none: "There was no preload yet: cachectl preload NAME", workers: "Workers and their tiers",
		stalls: "Stalls by cause", stalls_note: "requests of readers that took more than 1 s", cause: "Cause",
		in_window: "In the window", over_time: "Over time", since_start: "Since the start", events: "Events",
		version: "version", cluster: "cluster", epoch: "epoch", uptime: "up for", workers_n: "workers",
		lost: "The master has not answered since {0}", tile_cached: "In the tiers", tile_hit: "Hit ratio",
		tile_read: "Given to readers", tile_origin: "From origins", of: "of {0}", not_known: "not known yet", capacity_none: "no tier",
		no_worker: "No worker has joined the master.", owns: "{0} slots", only_copies: "{0} only there", silent: "not seen for {0}", last_seen: "last seen {0} ago",
		left_out: "{0} without history: no room", listed: "{0} keys listed", source: "source", path: "path",
		generation: "generation", rolled_back: "rolled back", consistency: "consistency", priority: "priority", last_error: "last error",
		quota: "quota", chart_cached: "Cached", chart_hit: "Hit ratio", chart_read: "Given to readers, /s",
		chart_origin: "From the origin, /s", most: "at most {0}", now: "now {0}", no_points: "no points yet", bar_label: "{0} cached",
		progress_label: "preload {0}", tier_label: "used of {0}",
	},
	zh: {
		skip: "跳到数据集", window: "时间范围", theme: "浅色或深色", summary: "概览",
		datasets: "数据集", name: "名称", phase: "阶段", files: "文件数", size: "大小", cached: "已缓存",
		cached_over_time: "缓存比例走势", hit_ratio: "命中率", hit_over_time: "命中率走势", mounts: "挂载数",
		datasets_none: "还没有数据集:cachectl dataset create NAME URL", close: "关闭",
		preloads: "预热任务", target: "对象", state: "状态", progress: "进度", rate: "速率", eta: "剩余", remark: "备注",
		preloads_none: "还没有预热任务:cachectl preload NAME", workers: "工作节点及其存储层",
		stalls: "停顿原因", stalls_note: "耗时超过 1 秒的读取请求", cause: "原因",
		in_window: "时间范围内", over_time: "走势", since_start: "启动以来", events: "事件",
		version: "版本", cluster: "集群", epoch: "纪元", uptime: "已运行", workers_n: "工作节点",
		lost: "自 {0} 起主节点没有响应", tile_cached: "存储层用量", tile_hit: "命中率",
		tile_read: "提供给读取者", tile_origin: "来自源站", of: "共 {0}", not_known: "尚无数据", capacity_none: "没有存储层",
		no_worker: "还没有工作节点加入主节点。", owns: "{0} 个槽", only_copies: "{0} 仅此一份", silent: "已 {0} 没有消息", last_seen: "{0} 前有消息",
		left_out: "{0} 个没有历史:空间不足", listed: "已列出 {0} 个键", source: "来源", path: "路径",
		generation: "代", rolled_back: "已回滚", consistency: "一致性", priority: "优先级", last_error: "最近的错误",
		quota: "配额", chart_cached: "已缓存", chart_hit: "命中率", chart_read: "提供给读取者 /s",
		chart_origin: "来自源站 /s", most: "最大 {0}", now: "当前 {0}", no_points: "尚无数据点", bar_label: "{0} 已缓存",
		progress_label: "预热 {0}", tier_label: "{0} 的用量",
		"word.Pending": "等待", "word.Listing": "列举中", "word.Failed": "失败", "word.Ready": "就绪", "word.Bound": "已挂载",
		"word.listing": "列举中", "word.waiting": "等待工作节点", "word.running": "进行中", "word.complete": "完成",
		"word.failed": "失败", "word.incomplete": "未完整", "word.cancelled": "已取消",
		"word.up": "在线", "word.down": "失联", "word.out": "已移出", "word.draining": "排空中", "word.drained": "已排空", "word.unknown": "未知", "word.ok": "正常", "word.stalled": "停滞",
		"word.suspect": "可疑", "word.out": "停用", "word.replaced": "已更换",
		"word.master": "主节点", "word.memory": "内存", "word.disk": "磁盘", "word.origin": "源站",
		"word.generation": "新一代", "word.worker": "工作节点", "word.tier": "存储层", "word.preload": "预热", "word.lineage": "新谱系",
	},
};

let language = "en";

// The text of that key; {0} is what follows.
function text(key, ...parts) {
	const found = TEXTS[language][key] || TEXTS.en[key] || key;
	return found.replace(/\{(\d)\}/g, (all, n) => parts[n]);
}

// A word of data, which may be one that this page does not know.
function word(value) {
	const found = TEXTS[language]["word." + value];
	return found === undefined ? String(value) : found;
}

function setLanguage(to) {
	language = Object.hasOwn(TEXTS, to) ? to : "en";
	document.documentElement.lang = language;
	for (const node of document.querySelectorAll("[data-t]"))
		node.textContent = text(node.dataset.t);
	for (const node of document.querySelectorAll("[data-t-label]"))
		node.setAttribute("aria-label", text(node.dataset.tLabel));
}
