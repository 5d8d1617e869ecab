// A conversation as a tree of messages, of which the page shows one branch.
//
// Conversation: {id, title, updated, system, leaf, messages: [Message]}; `leaf`
// is the id of the branch's last message, or null. Message: {id, parent, role,
// content, changed} and, where there are some: files [{name, text}], reasoning,
// calls [{id, name, arguments}], call (of a tool's result), meta, error,
// pending. A message's parent stands before it in the list.

export function newId() {
  return Date.now().toString(36) + Math.random().toString(36).slice(2, 10);
}

export function newConversation(system = '') {
  return {id: newId(), title: 'New chat', updated: Date.now(), system,
          leaf: null, messages: []};
}

function byId(conversation) {
  return new Map(conversation.messages.map((one) => [one.id, one]));
}

// The messages of the branch that is shown, the first one first.
export function branchOf(conversation) {
  const known = byId(conversation);
  const branch = [];
  for (let at = known.get(conversation.leaf); at; at = known.get(at.parent)) {
    branch.push(at);
  }
  return branch.reverse();
}

// Adds a message behind the branch and gives it.
export function append(conversation, message) {
  const added = {id: newId(), parent: conversation.leaf, changed: Date.now(),
                 ...message};
  conversation.messages.push(added);
  conversation.leaf = added.id;
  return added;
}

// The message and those that stand in its place on other branches.
export function versionsOf(conversation, message) {
  return conversation.messages.filter((one) => one.parent === message.parent);
}

// Shows the branch that was last begun behind `message`.
export function turnTo(conversation, message) {
  let last = message;
  for (const one of conversation.messages) {
    if (one.parent === last.id) last = one;
  }
  conversation.leaf = last.id;
}

// Takes over the messages that another tab has added or changed later; returns
// whether there were any.
export function merge(conversation, other) {
  const known = byId(conversation);
  let merged = false;
  for (const message of other.messages) {
    const ours = known.get(message.id);
    if (!ours) {
      conversation.messages.push(message);
    } else if (message.changed > ours.changed) {
      Object.assign(ours, message);
      for (const name of ['pending', 'error']) {
        if (!(name in message)) delete ours[name];
      }
    } else {
      continue;
    }
    merged = true;
  }
  return merged;
}

// A list of messages without a tree, such as the page once kept.
export function fromList({id = newId(), title, updated, system = ''}, list) {
  const conversation = {...newConversation(system), id,
                        title: title ?? 'Imported chat',
                        updated: updated ?? Date.now()};
  for (const message of list) append(conversation, message);
  return conversation;
}
