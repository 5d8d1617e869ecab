#include "common/engine/admission.h"

#include <gtest/gtest.h>

#include "common/base/retry_after.h"

namespace sluice {
namespace {

using std::chrono::seconds;

EngineOptions Options() {
  EngineOptions options;
  options.max_running = 4;
  options.max_queue = 1000;
  options.max_queue_wait = seconds(30);
  return options;
}

GenerateRequest Request(size_t length, const std::string& tenant = "") {
  GenerateRequest request;
  request.prompt_tokens.assign(length, 1);
  request.client = tenant;
  return request;
}

// 1,000 prompt tokens a second and 100 generated ones; 50 per sequence.
QueueState Known(int free_places) {
  QueueState queue;
  queue.free_places = free_places;
  queue.rates_known = true;
  queue.prompt_seconds = 0.001;
  queue.shared_prompt_seconds = 0.002;
  queue.decode_seconds = 0.01;
  queue.completion_tokens = 50;
  return queue;
}

QueueState::Client Waiting(std::string name, int sequences, int64_t tokens) {
  return {std::move(name), sequences, tokens, 0};
}

QueueState Queue(int free_places, std::vector<QueueState::Client> clients) {
  QueueState queue = Known(free_places);
  queue.clients = std::move(clients);
  for (const QueueState::Client& tenant : queue.clients) {
    queue.waiting += tenant.waiting;
    queue.prompt_tokens += tenant.prompt_tokens;
  }
  return queue;
}

TEST(AdmissionTest, TheWaitIsThatOfThePromptsBeforeIt) {
  EXPECT_EQ(PromisedWait(Known(4)), Duration::zero());
  EXPECT_NEAR(Seconds(PromisedWait(Queue(4, {Waiting("", 2, 5000)}))), 10,
              0.01);
}

TEST(AdmissionTest, WithAllPlacesTakenSequencesMustEndFirst) {
  // Nobody waits: the next end makes room, after half a second.
  EXPECT_NEAR(Seconds(PromisedWait(Known(0))), 0.5, 0.01);
  // Ten wait: eleven ends, and a second of prompts.
  EXPECT_NEAR(Seconds(PromisedWait(Queue(0, {Waiting("", 10, 1000)}))), 6.5,
              0.01);
}

TEST(AdmissionTest, ATenantWaitsForItsOwnAndItsTurnsNotForAnothersQueue) {
  const QueueState queue =
      Queue(4, {Waiting("many", 100, 50000), Waiting("few", 1, 100)});
  EXPECT_NEAR(Seconds(PromisedWait(queue, "many")), 100.2, 0.1);
  EXPECT_LT(Seconds(PromisedWait(queue, "few")), 1);
  EXPECT_LT(Seconds(PromisedWait(queue, "new")), 1);
}

TEST(AdmissionTest, WhatWouldWaitTooLongIsRefusedWithTheTimeToComeBack) {
  Admission admission(Options());
  admission.Publish(Queue(4, {Waiting("", 20, 20000)}));  // 40 s
  const Status status = admission.Admit(Request(10));
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(RetryAfterSeconds(status), 13);  // down to 27 s
}

TEST(AdmissionTest, EachThatIsTakenMakesTheNextOnesWaitLonger) {
  Admission admission(Options());
  admission.Publish(Known(4));
  int taken = 0;
  while (admission.Admit(Request(1000)).ok()) ++taken;
  EXPECT_EQ(taken, 16);  // 2 s each, up to 30 s
  // The engine's thread has them now, and its figures say the same.
  admission.OnTaken();
  admission.Publish(Queue(4, {Waiting("", 16, 16000)}));
  EXPECT_FALSE(admission.Admit(Request(1000)).ok());
}

TEST(AdmissionTest, WhoWasRefusedIsTakenAgainWellBelowTheLimit) {
  Admission admission(Options());
  admission.Publish(Queue(4, {Waiting("", 20, 15500)}));  // 31 s
  EXPECT_FALSE(admission.Admit(Request(10)).ok());
  admission.Publish(Queue(4, {Waiting("", 20, 14000)}));  // 28 s
  EXPECT_FALSE(admission.Admit(Request(10)).ok());
  EXPECT_TRUE(admission.Admit(Request(10, "another")).ok());
  admission.Publish(Queue(4, {Waiting("", 20, 13000)}));  // 26 s
  EXPECT_TRUE(admission.Admit(Request(10)).ok());
  admission.Publish(Queue(4, {Waiting("", 20, 14000)}));
  EXPECT_TRUE(admission.Admit(Request(10)).ok());
}

TEST(AdmissionTest, UntilRatesAreKnownRequestsAreCounted) {
  EngineOptions options = Options();
  options.max_queue = 3;
  Admission admission(options);
  for (int i = 0; i < 7; ++i) EXPECT_TRUE(admission.Admit(Request(9000)).ok());
  const Status status = admission.Admit(Request(1));
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(RetryAfterSeconds(status), 1);
  admission.OnEnd("");
  EXPECT_TRUE(admission.Admit(Request(1)).ok());
}

TEST(AdmissionTest, AFullQueueStillTakesATenantBelowItsShare) {
  EngineOptions options = Options();
  options.max_queue = 10;
  Admission admission(options);
  while (admission.Admit(Request(10, "many")).ok()) {
  }
  int taken = 0;
  while (admission.Admit(Request(10, "few")).ok()) ++taken;
  EXPECT_EQ(taken, 5);
  EXPECT_FALSE(admission.Admit(Request(10, "many")).ok());
}

TEST(AdmissionTest, HoweverManyTenantsComeTheQueueIsBounded) {
  EngineOptions options = Options();
  options.max_queue = 840;
  Admission admission(options);
  int taken = 0;
  for (int tenant = 0; tenant < 8; ++tenant) {
    while (admission.Admit(Request(10, std::to_string(tenant))).ok()) ++taken;
  }
  EXPECT_EQ(taken, 2 * 840 + options.max_running);
}

TEST(AdmissionTest, MembersOfOneRequestAreNotHeldAgainstEachOther) {
  Admission admission(Options());
  admission.Publish(Known(4));
  GenerateRequest member = Request(500, "tenant");
  member.request_id = "request";
  for (int i = 0; i < 128; ++i) {  // 128 s of prompts, limit 30 s
    EXPECT_TRUE(admission.Admit(member).ok()) << "member " << i;
  }
  EXPECT_FALSE(admission.Admit(Request(10, "tenant")).ok()) << "another one";
  // It is known as long as any of its members lives, no longer.
  for (int i = 0; i < 127; ++i) admission.OnEnd("request");
  EXPECT_TRUE(admission.Admit(member).ok());
  admission.OnEnd("request");
  admission.OnEnd("request");
  EXPECT_FALSE(admission.Admit(member).ok());
}

TEST(AdmissionTest, TheMembersOfOneRequestAreBoundedTogether) {
  EngineOptions options = Options();
  options.max_queue = 3;
  Admission admission(options);
  GenerateRequest member = Request(5);
  member.request_id = "request";
  int taken = 0;
  while (taken < 100 && admission.Admit(member).ok()) ++taken;
  EXPECT_EQ(taken, 2 * 3 + options.max_running);
}

TEST(AdmissionTest, ChoicesThatShareAPromptAskForItOnce) {
  GenerateRequest request = Request(1000);
  request.num_choices = 8;
  EXPECT_EQ(PromptWork(request, 1000), 1000);
  request.sampling.choice = 3;
  EXPECT_EQ(PromptWork(request, 1000), 1000 % kBlockTokens + 1);
  request.sampling.prompt_logprobs = 0;
  EXPECT_EQ(PromptWork(request, 1000), 1000);
}

TEST(AdmissionTest, AClientThatIsGivenAPlaceDoesNotWaitForAnEnd) {
  EngineOptions options;
  options.max_running = 8;
  QueueState queue = Known(0);
  queue.places = 8;
  queue.completion_tokens = 1e6;  // no place becomes free by itself
  queue.clients = {{"holds", 0, 0, 8}};
  Admission admission(options);
  admission.Publish(queue);
  EXPECT_FALSE(admission.Admit(Request(10, "holds")).ok());
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(admission.Admit(Request(10, "comes")).ok()) << i;
  }
  EXPECT_FALSE(admission.Admit(Request(10, "comes")).ok()) << "beyond a half";
}

TEST(AdmissionTest, ACapOfWaitingBitesOnlyWhileAnotherClientWaits) {
  EngineOptions options;
  options.max_running = 1;
  options.max_queue_per_client = 5;
  Admission admission(options);
  int taken = 0;
  while (taken < 20 && admission.Admit(Request(10, "many")).ok()) ++taken;
  EXPECT_EQ(taken, 20) << "alone it may have more";
  EXPECT_TRUE(admission.Admit(Request(10, "other")).ok());
  const Status refused = admission.Admit(Request(10, "many"));
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(admission.Admit(Request(10, "other")).ok());
  }
  EXPECT_FALSE(admission.Admit(Request(10, "other")).ok());
}

TEST(AdmissionTest, AClientWithAShortLineIsNotRefusedForAnothersPace) {
  // What the larger one queues, and what returns of it, is not before the
  // other one's prompts; nor do those wait at the pace that spares decodes.
  QueueState queue = Queue(0, {{"many", 100, 200000, 56}, {"few", 4, 300, 4}});
  queue.places = 64;
  queue.prompt_tokens += 30000;  // return
  queue.shared_prompt_seconds = 0.06;
  queue.owed_prompt_seconds = 0.003;
  EXPECT_NEAR(Seconds(PromisedWait(queue, "few", 32)), 0.9, 0.01);
  EXPECT_LT(Seconds(PromisedWait(queue, "new", 21)), 1);
  EXPECT_GT(Seconds(PromisedWait(queue, "many", 32)), 30);
  Admission admission(Options());
  admission.Publish(queue);
  EXPECT_TRUE(admission.Admit(Request(30, "few")).ok());
  EXPECT_FALSE(admission.Admit(Request(30, "many")).ok());
}

}  // namespace
}  // namespace sluice
