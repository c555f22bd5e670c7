// Reminders by mail, later: `node reminders.js publish 3000 1000` (ms), and `node reminders.js consume`.
const amqp = require('amqplib')
const { randomUUID } = require('crypto')

const EXCHANGE = process.env.EXCHANGE || 'reminders'
const QUEUE = `${EXCHANGE}.mail`

function publish(channel, delays) {
  for (const delay of delays) {
    const messageId = randomUUID()
    console.log(Date.now(), delay, messageId)
    channel.publish(EXCHANGE, 'mail', Buffer.from(`remind after ${delay}`), {
      messageId,
      contentType: 'text/plain',
      persistent: true,
      headers: { 'x-delay': Number(delay), tenant: 'a' }
    })
  }
}

async function consume(channel) {
  await channel.assertQueue(QUEUE)
  await channel.bindQueue(QUEUE, `${EXCHANGE}.due`, 'mail')
  await channel.consume(QUEUE, (message) => {
    const { messageId, headers } = message.properties
    console.log(Date.now(), messageId, headers.tenant, message.content.toString())
    channel.ack(message)
  })
  console.log('waiting')
}

async function main([command, ...delays]) {
  const connection = await amqp.connect(process.env.AMQP_URL || 'amqp://guest:guest@localhost:5672')
  const channel = await connection.createConfirmChannel()
  await channel.checkExchange(EXCHANGE)
  if (command === 'consume') return consume(channel)
  publish(channel, delays)
  await channel.waitForConfirms()
  await channel.close()
  await connection.close()
}

main(process.argv.slice(2))
